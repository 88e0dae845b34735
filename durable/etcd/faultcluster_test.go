//go:build linux

package etcd_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// cluster is three processes, each with an etcd server and a node, and a node in this process that is never the owner.
type cluster struct {
	tb       testing.TB
	name     string
	reserve  int64
	links    *links
	clients  []string // where etcd is reached
	mounted  bool     // each node has a disk of its own
	nodes    [testProcess]*process
	follower *durable.Node
	history  history
	round    int
}

// process is a node that is a process of its own.
type process struct {
	cluster *cluster
	config  nodeConfig
	say     *gob.Encoder
	stdin   io.Closer
	command *exec.Cmd
	stderr  *bytes.Buffer
	done    chan struct{} // closed when it has ended, and all that it reported was read
	ready   chan error
	stopped chan struct{}

	brokenBy atomic.Pointer[string] // why its etcd server cannot go on
}

// broken is why the etcd server of the process cannot go on.
func (p *process) broken() error {
	if text := p.brokenBy.Load(); text != nil {
		return errors.New(*text) //nolint:err113 // what the process says
	}
	return nil
}

// clusterNumber has every cluster use addresses of its own, which no connection of others can occupy.
var clusterNumber atomic.Int64

// startDelay is how long a node may take to start, and whatever else must come about in the end: on a machine that stands still for
// a while, which many a one does that others share, terms are lost one after the other until it goes on.
const startDelay = 2 * time.Minute

// newCluster starts a cluster, whose nodes have in common what is said of all.
func newCluster(tb testing.TB, name string, all nodeConfig, disks func(tb testing.TB) directories) *cluster {
	tb.Helper()
	c := &cluster{tb: tb, name: name, reserve: all.Reserve, links: newLinks(tb)}
	host := fmt.Sprintf("127.%d.%d", 64+os.Getpid()%128, clusterNumber.Add(1))
	peers := make(map[string]string)
	var addresses, clients []string
	for i := range testProcess {
		on := fmt.Sprintf("%s.%d", host, i+1)
		peers[fmt.Sprintf("n%d", i)] = "http://" + c.links.to(tb, i, on+":7090")
		addresses = append(addresses, c.links.to(tb, i, on+":7091"))
		clients = append(clients, "http://"+c.links.to(tb, i, on+":7092"))
	}
	on := disks(tb)
	c.mounted = on.mounted
	c.clients = clients
	for i := range testProcess {
		at := fmt.Sprintf("%s.%d", host, i+1)
		n := all
		n.Index, n.Directory, n.Unsynced, n.Segment = i, on.of(i), !on.memory, 1<<20
		n.Peers, n.Name, n.Listen = peers, fmt.Sprintf("n%d", i), "http://"+at+":7090"
		n.Forward, n.Address, n.Clients = at+":7091", addresses[i], at+":7092"
		c.nodes[i] = &process{cluster: c, config: n}
	}
	tb.Cleanup(func() {
		for _, p := range c.nodes {
			p.kill()
		}
	})
	c.startAll()
	joined, err := etcd.Join(tb.Context(), etcd.ClusterOptions{Endpoints: clients, Follower: true, TTL: all.TTL, OwnerWait: all.OwnerWait})
	if err != nil {
		tb.Fatal(err)
	}
	c.follower = joined.Node()
	tb.Cleanup(func() { _ = joined.Close() })
	return c
}

// startAll starts the processes that do not run, and waits until they are ready.
func (c *cluster) startAll() {
	c.tb.Helper()
	var started []*process
	for _, p := range c.nodes {
		if !p.runs() {
			p.start()
			started = append(started, p)
		}
	}
	for _, p := range started {
		if err := p.wait(); err != nil {
			c.tb.Fatalf("%s: node %d does not start: %v\n%s", c.name, p.config.Index, err, p.stderr)
		}
	}
}

// start starts the process, which says by ready whether it could.
func (p *process) start() {
	p.cluster.tb.Helper()
	text, err := json.Marshal(p.config) //nolint:musttag // it is read by the same type
	if err != nil {
		p.cluster.tb.Fatal(err)
	}
	p.command = exec.Command(os.Args[0]) //nolint:noctx // this binary, which is killed
	p.command.Env = append(os.Environ(), nodeVariable+"="+string(text))
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.stderr = new(bytes.Buffer)
	p.command.Stderr = p.stderr
	stdin, err := p.command.StdinPipe()
	if err != nil {
		p.cluster.tb.Fatal(err)
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		p.cluster.tb.Fatal(err)
	}
	p.brokenBy.Store(nil)
	p.say, p.stdin = gob.NewEncoder(stdin), stdin
	p.done, p.ready, p.stopped = make(chan struct{}), make(chan error, 1), make(chan struct{}, 1)
	if err := p.command.Start(); err != nil {
		p.cluster.tb.Fatal(err)
	}
	p.cluster.links.started(p.config.Index, p.command.Process.Pid)
	go p.read(stdout, p.command, p.done, p.ready, p.stopped)
}

// read takes in what the process reports until it ends.
func (p *process) read(from io.Reader, c *exec.Cmd, done chan struct{}, ready chan error, stopped chan struct{}) {
	h, index := &p.cluster.history, p.config.Index
	reports := gob.NewDecoder(from)
	for {
		var x report
		if err := reports.Decode(&x); err != nil {
			break
		}
		switch x.Kind {
		case "ready":
			ready <- nil
		case "failed":
			ready <- fmt.Errorf("%s", x.Text) //nolint:err113 // what the process says
		case "event":
			h.add(x.Event)
		case "owns":
			h.owns(ownership{index, x.Epoch, x.At})
		case "broken":
			p.brokenBy.Store(&x.Text)
		case "stopped":
			stopped <- struct{}{}
		case "log":
			if !strings.Contains(x.Text, "etcd=") { // which says much about connections
				h.say(fmt.Sprintf("%.3f node %d: %.300s", float64(x.At)/1e9, index, x.Text))
			}
		}
	}
	err := c.Wait()
	select {
	case ready <- fmt.Errorf("it has ended: %w", errors.Join(errEnded, err)):
	default:
	}
	close(done)
}

var errEnded = errors.New("the process has ended")

// wait waits until the process is ready, or says why it is not.
func (p *process) wait() error {
	select {
	case err := <-p.ready:
		return err
	case <-time.After(startDelay):
		return fmt.Errorf("it is not ready after %v", startDelay) //nolint:err113 // a test
	}
}

func (p *process) runs() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once.
func (p *process) kill() {
	if p.runs() {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.command.Process.Pid, s) }

// load has the process begin its part of the load.
func (p *process) load(c loadConfig) { _ = p.say.Encode(command{Kind: "load", Load: c}) }

// until waits for a condition that the processes bring about.
func (c *cluster) until(what string, is func() bool) {
	c.tb.Helper()
	if !holdsWithin(startDelay, is) {
		c.tb.Fatalf("%s: it did not come about that %s\n%s", c.name, what, c.history.said())
	}
}

// owner is the process that owns the limits.
func (c *cluster) owner() *process {
	c.tb.Helper()
	var found *process
	c.until("there is an owner", func() bool {
		address := c.follower.Ownership().Address
		at := slices.IndexFunc(c.nodes[:], func(p *process) bool { return p.config.Address == address })
		if at >= 0 {
			found = c.nodes[at]
		}
		return at >= 0
	})
	return found
}

// round is a fault under load, and what has been seen of it.
type round struct {
	cluster *cluster
	config  loadConfig
	load    *load
	queue   *queueClient
	random  *rand.Rand
	wall    int64 // what the clock on the wall was ahead of that of monotonic
	begun   int64

	kind    string
	fault   int64 // when it happened
	away    []int // processes whose callers do not count for the time without service
	killed  int   // how many processes were killed
	least   int64 // permits that callers may have been granted of each key who were killed
	service time.Duration
}

// others are all processes but one, this one included.
func (*round) others(process int) (all []int) {
	for i := range processes {
		if i != process {
			all = append(all, i)
		}
	}
	return all
}

// begin begins a round under load, and returns when all processes are granted permits.
func (c *cluster) begin() *round {
	c.tb.Helper()
	c.round++
	r := &round{
		cluster: c, config: newLoadConfig(c.round), wall: wallOffset(), begun: monotonic(), random: rand.New(rand.NewPCG(1, uint64(c.round))),
	}
	c.history.begin(c.round)
	for _, p := range c.nodes {
		p.load(r.config)
	}
	r.load = startLoad(c.follower, testProcess, r.config, c.history.add)
	r.queue = c.startQueue(r.config)
	r.settle(r.begun)
	return r
}

// slowSettle is after how long the logs are shown of a round that does not settle.
const slowSettle = 4 * time.Second

// settle waits until all processes were granted permits that they asked for after a time.
func (r *round) settle(after int64, but ...int) {
	r.cluster.tb.Helper()
	for i := range processes {
		if !slices.Contains(but, i) {
			r.served(i, after)
		}
	}
}

// served waits until a process was granted permits that it asked for after a time.
func (r *round) served(process int, after int64) {
	c, begun := r.cluster, time.Now()
	c.tb.Helper()
	c.until(fmt.Sprintf("process %d is granted permits (%s, round %d)", process, r.kind, c.round), func() bool {
		return c.history.served(process) > after
	})
	if took := time.Since(begun); took > slowSettle {
		c.tb.Logf("it took %v until process %d was served\n%s", took, process, c.history.said())
	}
}

// end ends the load, and checks what was granted.
func (r *round) end() {
	c := r.cluster
	c.tb.Helper()
	c.until(fmt.Sprintf("something is granted of every key (%s, round %d)", r.kind, c.round), c.history.tried)
	r.queue.stop()
	for _, p := range c.nodes {
		_ = p.say.Encode(command{Kind: "stop"})
	}
	r.load.stop()
	for _, p := range c.nodes {
		select {
		case <-p.stopped:
		case <-p.done:
			c.tb.Fatalf("%s: node %d has ended: %s", c.name, p.config.Index, p.stderr)
		case <-time.After(startDelay):
			c.tb.Fatalf("%s: node %d does not stop its load\n%s", c.name, p.config.Index, c.history.said())
		}
	}
	r.check()
}

// left is what the owner says that is left of a limit.
func (r *round) left(kind int) int64 {
	r.cluster.tb.Helper()
	ask := r.config.request(kind)
	var left int64
	r.cluster.until("what is left is told", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		a := spectest.Acquire(ctx, r.cluster.follower, ask)
		left = a.Remaining
		return a.Reason == weir.ReasonNone || a.Reason == weir.ReasonLimited
	})
	return left
}

// history is what callers of a cluster were answered in a round.
type history struct {
	mu     sync.Mutex
	round  int
	events []event
	terms  []ownership
	last   [processes]int64 // when the last request was made that was granted, by process
	some   [faultKeys]bool  // keys of which something was granted
	lines  []string
}

// ownership is a term of a process.
type ownership struct {
	process   int
	epoch, at int64
}

func (h *history) begin(round int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.round, h.events, h.lines = round, nil, nil
	if n := len(h.terms); n > 1 {
		h.terms = h.terms[n-1:]
	}
	h.last, h.some = [processes]int64{}, [faultKeys]bool{}
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Round != h.round {
		return
	}
	h.events = append(h.events, e)
	if e.Reason == weir.ReasonNone && e.N > 0 {
		h.some[e.Key] = true
	}
	if e.Key == busyKey && e.Reason == weir.ReasonNone {
		h.last[e.Process] = max(h.last[e.Process], e.Asked)
	}
}

// tried reports whether something was granted of every key.
func (h *history) tried() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.Contains(h.some[:], false)
}

func (h *history) owns(o ownership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms = append(h.terms, o)
}

const mostSaid = 60

func (h *history) say(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lines = append(h.lines, line); len(h.lines) > mostSaid {
		h.lines = h.lines[1:]
	}
}

// said is what the processes have logged in the round, as far back as it is kept.
func (h *history) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b bytes.Buffer
	for _, l := range h.lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// served is when a process asked the last time for permits that it was granted.
func (h *history) served(process int) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[process]
}

// wallOffset is what the clock on the wall is ahead of that of monotonic.
func wallOffset() int64 {
	before := monotonic()
	wall := time.Now().UnixNano()
	return wall - (before+monotonic())/2
}
