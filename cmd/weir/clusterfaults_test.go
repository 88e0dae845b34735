//go:build linux

package main_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// faultPolicies have limits of which an hour brings back as much as there is, so that a clock that is believed would grant them
// twice; one that is back within a second; and a month's quota.
const (
	faultPolicies = `
policies:
  hour: {limit: 300/h, burst: 300, durability: cluster}
  second: {limit: 10/s, burst: 10, durability: cluster}
  month:
    limits: [{algorithm: calendar-window, permits: 300, every: month}]
    durability: cluster
rules:
  - {name: all, limits: [hour, second, month]}
`
	faultPermits = 300
)

// faultNode is one of the three nodes of the README, which ends and is started again.
type faultNode struct {
	t       *testing.T
	name    string
	path    string // its configuration
	data    string // its directory
	peer    string // what the others reach it by
	program string
	clock   *os.File      // by how many seconds its clock is ahead, nil if it has the one of the machine
	stepped time.Duration // as step has set it
	server  *server
	address string // where it is asked

	mu    sync.Mutex
	lines []string // of the log since it was started
	read  chan struct{}
}

type faultCluster struct {
	t       *testing.T
	nodes   []*faultNode
	began   time.Time
	client  *http.Client
	granted sync.Map // how many permits of a policy and key were granted
	unknown sync.Map // the same of requests without an answer, which may have taken them
}

// newFaultCluster starts the three nodes of the README, at other ports, with these policies. Their clocks can be set if the program is
// one with such clocks.
func newFaultCluster(t *testing.T, program string, stepped bool) *faultCluster {
	t.Helper()
	base := tens(t)
	moved := strings.NewReplacer("127.0.0.1:708", fmt.Sprintf("127.0.0.1:%d", base+1), "127.0.0.1:709", fmt.Sprintf("127.0.0.1:%d", base+2))
	c := &faultCluster{t: t, began: time.Now(), client: &http.Client{Timeout: 30 * time.Second}}
	for i := 1; i <= 3; i++ {
		text, _, found := strings.Cut(moved.Replace(example(t, fmt.Sprintf("%s%d.yaml", threeNodes, i))), "policies:")
		if !found {
			t.Fatal("the example has no policies")
		}
		dir := t.TempDir()
		n := &faultNode{
			t: t, name: fmt.Sprintf("node%d", i), path: filepath.Join(dir, "weir.yaml"), data: filepath.Join(dir, fmt.Sprintf("data%d", i)),
			peer: fmt.Sprintf("http://127.0.0.1:%d%d", base+1, i), program: program,
		}
		writeConfig(t, n.path, text+strings.TrimPrefix(faultPolicies, "\n"))
		if stepped {
			n.withClock(filepath.Join(dir, "clock"))
		}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.nodes {
				t.Logf("%s:\n%s", n.name, n.said())
			}
		}
	})
	c.owner()
	return c
}

// start starts the node, and follows its log.
func (n *faultNode) start() {
	n.t.Helper()
	cmd := command(n.t, "serve", "--http", "127.0.0.1:0", "--config", n.path, "--admin-rate", "10000/s")
	cmd.Path = n.program
	if n.clock != nil {
		cmd.Env = append(cmd.Env, "WEIR_TEST_CLOCK="+n.clock.Name())
	}
	n.server = startCommand(n.t, cmd)
	n.address = n.server.address
	log, read := n.server.log, make(chan struct{})
	n.mu.Lock()
	n.lines, n.read = nil, read
	n.mu.Unlock()
	go func() {
		defer close(read)
		for log.Scan() {
			n.mu.Lock()
			n.lines = append(n.lines, log.Text())
			n.mu.Unlock()
		}
	}()
}

// end ends the node, which must not have ended by itself.
func (n *faultNode) end(s syscall.Signal) {
	n.t.Helper()
	n.server.signal(s)
	<-n.read
	status := n.server.wait()
	if s == syscall.SIGTERM && status.ExitCode() != 0 || status.ExitCode() > 0 {
		n.t.Errorf("%s: %v", n.name, status)
	}
}

// said is the log of the process that was started last.
func (n *faultNode) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// withClock gives the node a clock that can be set, by a file.
func (n *faultNode) withClock(path string) {
	n.t.Helper()
	file, err := os.Create(path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = file.Close() })
	n.clock = file
	n.step(0)
}

// step sets the clock of the node.
func (n *faultNode) step(by time.Duration) {
	n.t.Helper()
	n.stepped = by
	seconds := binary.NativeEndian.AppendUint64(nil, uint64(by/time.Second))
	if _, err := n.clock.WriteAt(seconds, 0); err != nil {
		n.t.Fatal(err)
	}
}

// running reports whether the process has not ended.
func (n *faultNode) running() bool {
	select {
	case <-n.read:
		return false
	default:
		return true
	}
}

// get asks the node, and returns 0 if it does not respond.
func (c *faultCluster) get(n *faultNode, method, path, body string) (status int, text string) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+n.address+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(b)
}

// take asks a node for permits.
func (c *faultCluster) take(n *faultNode, policy, key string, permits int) int {
	status, _ := c.get(n, http.MethodPost, "/v1/check", fmt.Sprintf(`{"policy":%q,"key":%q,"cost":%d}`, policy, key, permits))
	switch status {
	case http.StatusOK:
		counter(&c.granted, policy, key).Add(int64(permits))
	case http.StatusTooManyRequests:
	default: // an owner may have written them before it was lost
		counter(&c.unknown, policy, key).Add(int64(permits))
	}
	return status
}

func counter(of *sync.Map, policy, key string) *atomic.Int64 {
	n, _ := of.LoadOrStore(policy+" "+key, new(atomic.Int64))
	return n.(*atomic.Int64) //nolint:forcetypeassert // it is always one
}

// want takes permits that must be granted in the end. They may be refused if those that were granted, with all that may have been
// taken by requests without an answer, leave no room for them, and none come back soon.
func (c *faultCluster) want(n *faultNode, policy, key string, permits int) {
	c.t.Helper()
	soon := strings.HasSuffix(policy, "second") || policy == "locked"
	eventually(c.t, fmt.Sprintf("%s grants %d permits of %s to %s", n.name, permits, policy, key), func() bool {
		taken := counter(&c.granted, policy, key).Load() + counter(&c.unknown, policy, key).Load()
		switch c.take(n, policy, key, permits) {
		case http.StatusOK:
			return true
		case http.StatusTooManyRequests:
			return !soon && taken+int64(permits) > faultPermits
		}
		return false
	})
}

// exhaust asks nodes until each of them refuses.
func (c *faultCluster) exhaust(policy, key string, nodes ...*faultNode) {
	c.t.Helper()
	for _, n := range nodes {
		permits := faultPermits / 3
		eventually(c.t, fmt.Sprintf("%s refuses %s to %s", n.name, policy, key), func() bool {
			if c.take(n, policy, key, permits) != http.StatusTooManyRequests {
				return false
			}
			permits /= 10
			return permits == 0
		})
	}
}

// check compares what was granted with what may have been.
func (c *faultCluster) check() {
	c.t.Helper()
	passed := time.Since(c.began) + time.Second
	c.granted.Range(func(name, value any) bool {
		policy, _, _ := strings.Cut(name.(string), " ") //nolint:forcetypeassert // it is always one
		most := int64(faultPermits)
		_, per, found := strings.Cut(policy, "-")
		if !found {
			per = policy
		}
		switch per {
		case "hour":
			most += int64(passed / (time.Hour / faultPermits))
		case "second", "locked":
			most = 10 + int64(10*passed.Seconds())
		case "month": // of which there are two if one begins between the clocks of the nodes
			now := time.Now().UTC()
			if now.Add(-2*time.Hour).Month() != now.Add(2*time.Hour).Month() {
				most *= 2
			}
		}
		if got := value.(*atomic.Int64).Load(); got > most { //nolint:forcetypeassert // it is always one
			c.t.Errorf("%s: %d permits were granted, and %d may be", name, got, most)
		}
		return true
	})
}

// cluster is what a node says of its cluster.
func (c *faultCluster) cluster(n *faultNode) (s durableStatus, ok bool) {
	var status struct {
		Cluster durableStatus `json:"cluster"`
	}
	code, body := c.get(n, http.MethodGet, "/v1/status", "")
	ok = code == http.StatusOK && json.Unmarshal([]byte(body), &status) == nil
	return status.Cluster, ok
}

// owner is the node that owns the limits, once all that take part agree.
func (c *faultCluster) owner(but ...*faultNode) (owner *faultNode) {
	c.t.Helper()
	eventually(c.t, "there is an owner", func() bool {
		owner = nil
		for _, n := range c.others(but...) {
			s, ok := c.cluster(n)
			if !ok || s.Owner == "" {
				return false
			}
			if s.Owns {
				owner = n
			}
		}
		return owner != nil
	})
	return owner
}

// others are all nodes but these.
func (c *faultCluster) others(but ...*faultNode) []*faultNode {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *faultNode) bool { return slices.Contains(but, n) })
}

// ready waits until a node takes part, or says that it must not.
func (c *faultCluster) ready(n *faultNode) (takesPart bool) {
	c.t.Helper()
	eventually(c.t, n.name+" takes part or refuses", func() bool {
		if !n.running() {
			c.t.Fatalf("%s has ended:\n%s", n.name, n.said())
		}
		if n.damaged() {
			return true
		}
		status, _ := c.get(n, http.MethodGet, "/readyz", "")
		takesPart = status == http.StatusOK
		return takesPart
	})
	return takesPart
}

// refuses checks that a node does not take part, and that its log says what to do.
func (c *faultCluster) refuses(n *faultNode) {
	c.t.Helper()
	if c.ready(n) {
		c.t.Fatalf("%s takes part", n.name)
	}
	for _, part := range []string{"weir cluster remove " + n.name, "weir cluster add " + n.name + " " + n.peer, "join: true", n.data} {
		if !strings.Contains(n.said(), part) {
			c.t.Errorf("%s does not log %q:\n%s", n.name, part, n.said())
		}
	}
	if status, body := c.get(n, http.MethodGet, "/readyz", ""); status != http.StatusServiceUnavailable {
		c.t.Errorf("%s: /readyz: %d %s", n.name, status, body)
	}
	if status := c.take(n, "hour", "refused", 1); status != http.StatusServiceUnavailable {
		c.t.Errorf("%s: %d", n.name, status)
	}
}

// operate runs weir cluster.
func (c *faultCluster) operate(at *faultNode, args ...string) string {
	c.t.Helper()
	var got outcome
	eventually(c.t, fmt.Sprintf("weir cluster %q", args), func() bool { // the others must have been connected for a while
		got = weir(c.t, nil, append(append([]string{"cluster"}, args...), "--server", "http://"+at.address)...)
		return got.status == 0
	})
	return got.stdout
}

// repair does with a node what its log says, while another one is asked.
func (c *faultCluster) repair(n, at *faultNode) {
	c.t.Helper()
	if n.running() {
		n.end(syscall.SIGTERM)
	}
	c.operate(at, "remove", n.name, "--reason", "its disk is lost")
	c.operate(at, "add", n.name, n.peer)
	n.wipe()
	text, err := os.ReadFile(n.path)
	if err != nil {
		c.t.Fatal(err)
	}
	if !strings.Contains(string(text), "join: true") {
		writeConfig(c.t, n.path, strings.Replace(string(text), "cluster:\n", "cluster:\n  join: true\n", 1))
	}
	n.start()
	if !c.ready(n) {
		c.t.Fatalf("%s was repaired, and does not take part:\n%s", n.name, n.said())
	}
	eventually(c.t, n.name+" votes", func() bool {
		for line := range strings.Lines(c.operate(at, "members")) {
			if strings.HasPrefix(line, n.name+" ") && strings.Contains(line, "votes") {
				return true
			}
		}
		return false
	})
}

// wipe empties the directory of the node, which is down.
func (n *faultNode) wipe() {
	n.t.Helper()
	if err := os.RemoveAll(n.data); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Mkdir(n.data, 0o700); err != nil {
		n.t.Fatal(err)
	}
}

// faultRounds is how often a fault is done: WEIR_ROUNDS times, or a few times.
func faultRounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("WEIR_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WEIR_ROUNDS %q: must be a number from 1", text)
	}
	return n
}

// The tests below do to the cluster of the README, as processes, what disks and clocks do: nothing is granted above its limit, no key
// stays refused, and the log says what has happened and what to do. They mostly wait.

// TestClusterWipedDisk: the disk of one node is lost while another one is behind. Both together are a majority that does not know what
// was granted, and grant nothing.
func TestClusterWipedDisk(t *testing.T) {
	t.Parallel()
	c := newFaultCluster(t, plain, false)
	lost, behind, whole := c.nodes[0], c.nodes[1], c.nodes[2]
	for _, policy := range []string{"hour", "month"} {
		c.want(lost, policy, "acme", 100)
	}
	behind.end(syscall.SIGKILL)
	for _, policy := range []string{"hour", "month"} {
		c.want(whole, policy, "acme", 100)
	}
	lost.end(syscall.SIGKILL)
	whole.end(syscall.SIGKILL)
	lost.wipe()
	lost.start()
	behind.start()
	c.refuses(lost)
	for _, n := range []*faultNode{lost, behind} {
		if status := c.take(n, "month", "acme", 1); status != http.StatusServiceUnavailable {
			t.Errorf("%s, without a majority: %d", n.name, status)
		}
	}
	whole.start()
	for _, policy := range []string{"hour", "month"} {
		c.exhaust(policy, "acme", behind, whole)
	}
	c.check()
	c.want(whole, "month", "other", 1)
	lost.end(syscall.SIGTERM)
	lost.start() // the same again
	c.refuses(lost)
	c.repair(lost, behind)
	c.exhaust("month", "acme", lost)
	whole.end(syscall.SIGKILL) // now what the mended node has counts
	for _, policy := range []string{"hour", "month"} {
		c.exhaust(policy, "acme", lost, behind)
	}
	c.want(lost, "month", "other", 1)
	c.check()
}

// TestClusterFlippedBits: one bit of a file of one node changes while the node is down, again and again. The node says what is damaged
// and what to do, or goes on, and then grants by what is on its disk.
func TestClusterFlippedBits(t *testing.T) {
	t.Parallel()
	c, rounds := newFaultCluster(t, plain, false), faultRounds(t, 6)
	r := rand.New(rand.NewPCG(16, 13))
	n := c.nodes[0]
	others := c.others(n)
	refused, left := 0, 0
	for round := range rounds {
		key := fmt.Sprint("round ", round)
		c.want(others[0], "month", key, 200)
		c.want(others[1], "hour", key, 200)
		n.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[round%2])
		f := n.flip(r)
		n.start()
		c.want(others[round%2], "month", key, 90) // the others go on
		takesPart := c.ready(n)
		if takesPart {
			c.handOver(n)
		}
		for _, policy := range []string{"month", "hour"} {
			c.exhaust(policy, key, others...)
		}
		if n.damaged() {
			c.refuses(n)
		} else {
			c.exhaust("month", key, n)
			c.exhaust("hour", key, n)
		}
		c.check()
		damaged := n.damaged()
		if t.Logf("%v: takes part: %v, damaged: %v", f, takesPart, damaged); t.Failed() {
			t.FailNow()
		}
		switch {
		case damaged && !takesPart: // it has told the others nothing, so that what it had before is as good as it was
			refused++
			n.end(syscall.SIGTERM)
			f.undo(t)
			n.start()
			if !c.ready(n) {
				t.Fatalf("%v: it is as it was, and refused:\n%s", f, n.said())
			}
		case damaged:
			left++
			c.repair(n, others[0])
		}
	}
	if refused+left == 0 {
		t.Error("no damage was found")
	}
	t.Logf("%d bits: %d times it refused to take part, %d times it left, otherwise it went on", rounds, refused, left)
}

// handOver has a node own the limits, unless it finds out that it is damaged.
func (c *faultCluster) handOver(n *faultNode) {
	c.t.Helper()
	for !n.damaged() {
		owner := c.owner()
		if owner == n {
			return
		}
		owner.end(syscall.SIGTERM)
		c.owner(owner)
		owner.start()
		c.ready(owner)
	}
}

// damaged reports whether the node has said that it must not take part.
func (n *faultNode) damaged() bool { return strings.Contains(n.said(), "must not take part") }

// flip is a bit of a file that was changed.
type flip struct {
	data, saved string // the directory of the node, and what it was before
	path        string
	at          int64
	bit         int
}

func (f *flip) String() string {
	return fmt.Sprintf("bit %d of byte %d of %s", f.bit, f.at, filepath.Base(f.path))
}

// flip changes a bit of a file of the node, where something was written.
func (n *faultNode) flip(r *rand.Rand) *flip {
	n.t.Helper()
	parts := []string{"member/snap/db", "member/snap/db", "member/snap/db", "member/wal/*.wal", "member/wal/*.wal", "weir.*"}
	found, err := filepath.Glob(filepath.Join(n.data, parts[r.IntN(len(parts))]))
	if err != nil || len(found) == 0 {
		n.t.Fatalf("%v: %v", found, err)
	}
	saved := filepath.Join(n.t.TempDir(), "saved")
	copied(n.t, n.data, saved)
	for {
		f := &flip{data: n.data, saved: saved, path: found[r.IntN(len(found))], bit: r.IntN(8)}
		content, err := os.ReadFile(f.path)
		if err != nil {
			n.t.Fatal(err)
		}
		var written []int64
		for at, b := range content {
			if b != 0 {
				written = append(written, int64(at))
			}
		}
		if len(written) == 0 { // the lock has nothing
			continue
		}
		f.at = written[r.IntN(len(written))]
		content[f.at] ^= 1 << f.bit
		if err := os.WriteFile(f.path, content, 0o600); err != nil {
			n.t.Fatal(err)
		}
		return f
	}
}

// undo makes the directory of the node what it was before the flip: what ran with it may have changed other files as well.
func (f *flip) undo(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(f.data); err != nil {
		t.Fatal(err)
	}
	copied(t, f.saved, f.data)
}

// copied copies a directory, without the holes of its files.
func copied(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
