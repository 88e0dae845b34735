package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/clock"
)

// demoNodeConfig is the configuration of a node: its number, the ports of etcd on all three, its port for the others, and the
// limit.
const demoNodeConfig = `version: 1
cluster:
  directory: data
  name: node%d
  peers: {node1: 'http://127.0.0.1:%d', node2: 'http://127.0.0.1:%d', node3: 'http://127.0.0.1:%d'}
  address: 127.0.0.1:%d
  requeue: true
policies:
  default: {limit: %d/s, burst: %d, durability: cluster, queue: {limit: 1000, max_wait: 30s}}
rules:
  - {name: all, limits: default}
`

const (
	demoNodes     = 3
	demoClients   = 20
	demoPerSecond = 20
	demoBurst     = 20
	// demoCheck waits for its turn.
	demoCheck = `{"key":"alice","wait":10}`
	// demoBefore is how long there is traffic before the owner is killed, and demoAfter how long once there is another one.
	demoBefore, demoAfter = 2 * time.Second, 2 * time.Second
	// demoRetry is how long a client waits after an answer without a decision, and how often the nodes are asked for the owner.
	demoRetry = 50 * time.Millisecond
	// demoPatience is how long the nodes may take to choose an owner.
	demoPatience = 2 * time.Minute
)

func demoClusterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cluster",
		Short: "Run three nodes with one limit, and kill the one that owns it",
		Long: `cluster runs three nodes of weir as processes of this machine, which share one
durable limit, and twenty clients that ask all of them. It kills the node that
owns the limit, as a crash would, and says which one owns it then, for how long
nothing was decided, and that no more requests were allowed than the limit
allows. It takes some ten seconds.

The nodes listen on free ports of the loopback address, and write to a
directory for temporary files. At the end, and on Ctrl-C, they are ended and
the directory is removed.

The exit status is 0 if the limit was kept, 1 if it was not or the nodes
cannot run.`,
		Example: `  weir demo cluster
  TMPDIR=/var/tmp weir demo cluster`,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Until the nodes are gone a second Ctrl-C does not end the program.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			// Nor does an output that is not read any more end it before them.
			signal.Ignore(syscall.SIGPIPE)
			defer signal.Reset(syscall.SIGPIPE)
			if err := demoCluster(ctx, cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("weir: demo cluster: %w", err)
			}
			return nil
		},
	}
}

// demoFleet are the nodes of the demo.
type demoFleet struct {
	out   io.Writer
	begun time.Time
	http  *http.Client
	nodes []*demoNode
}

type demoNode struct {
	name, dir string
	client    *operator.Client
	process   *exec.Cmd
	printed   *bufio.Scanner // its address
	gone      bool
}

// demoCluster starts the nodes, kills the owner while clients ask, and says what became of the limit. Nothing is left of it when
// it returns.
func demoCluster(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		cancel()
		return err //nolint:wrapcheck // the command names itself
	}
	f := &demoFleet{out: out, begun: time.Now(), http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: demoClients}, Timeout: time.Minute,
	}}
	defer func() {
		cancel()
		f.http.CloseIdleConnections()
		for _, n := range f.nodes {
			_ = n.process.Wait() // it was killed
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	fmt.Fprintf(out, "%d nodes of weir start on this machine, each with an etcd of its own\n", demoNodes)
	if err = f.start(ctx, dir); err != nil {
		return demoEnded(ctx, err)
	}
	owner, err := f.owner(ctx)
	if err != nil {
		return demoEnded(ctx, err)
	}
	f.sayf("%s owns the limit of all: %d/s, burst %d", owner.name, demoPerSecond, demoBurst)

	traffic, end := context.WithCancel(ctx)
	defer end()
	t := &demoTraffic{begun: time.Now()}
	for n := range demoClients {
		t.clients.Go(func() { f.ask(traffic, n, t) })
	}
	f.sayf("%d clients ask all nodes, and wait for their turn", demoClients)
	next, err := f.kill(ctx, owner, t)
	end()
	t.clients.Wait()
	if err != nil {
		return demoEnded(ctx, err)
	}
	f.sayf("the clients stop")
	return t.tell(out, owner, next)
}

// demoEnded returns why ctx has ended, or else err.
func demoEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // what the program ends with
	}
	return err
}

// kill kills the owner while clients ask, and returns the next one after they have asked for some time more.
func (f *demoFleet) kill(ctx context.Context, owner *demoNode, t *demoTraffic) (*demoNode, error) {
	if !clock.Sleep(ctx, demoBefore) {
		return nil, context.Cause(ctx)
	}
	allowed := t.kills()
	if err := owner.process.Process.Kill(); err != nil {
		return nil, err //nolint:wrapcheck // the command names itself
	}
	_ = owner.process.Wait() // it was killed
	owner.gone = true
	f.sayf("%d requests were allowed; %s, the owner, is killed with SIGKILL", allowed, owner.name)
	next, err := f.owner(ctx)
	if err != nil {
		return nil, err
	}
	f.sayf("%s owns the limit", next.name)
	if !clock.Sleep(ctx, demoAfter) {
		return next, context.Cause(ctx)
	}
	return next, nil
}

// sayf writes a line with the time since the start.
func (f *demoFleet) sayf(format string, args ...any) {
	fmt.Fprintf(f.out, "%5.1f s  %s\n", time.Since(f.begun).Seconds(), fmt.Sprintf(format, args...))
}

// start starts all nodes, each in a directory of its own. They are killed when ctx ends.
func (f *demoFleet) start(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err //nolint:wrapcheck // the command names itself
	}
	port, err := freePorts(ctx, 2*demoNodes)
	if err != nil {
		return err
	}
	for i := range demoNodes {
		n := &demoNode{name: fmt.Sprintf("node%d", i+1)}
		n.dir = filepath.Join(dir, n.name)
		config := fmt.Sprintf(demoNodeConfig, i+1, port, port+1, port+2, port+demoNodes+i, demoPerSecond, demoBurst)
		err = n.start(ctx, self, config)
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, n)
	}
	for _, n := range f.nodes {
		if !n.printed.Scan() {
			text, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			return fmt.Errorf("%s has ended: %s", n.name, strings.TrimSpace(string(text)))
		}
		if n.client, err = operator.NewClient(operator.ClientOptions{Server: "http://" + n.printed.Text()}); err != nil {
			return err //nolint:wrapcheck // the command names itself
		}
		f.sayf("%s is process %d, %s%s", n.name, n.process.Process.Pid, n.client.Server(), operator.UIPath)
	}
	return nil
}

// start starts the process of a node, which is that program. Its log goes to a file.
func (n *demoNode) start(ctx context.Context, program, config string) error {
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return err //nolint:wrapcheck // the command names itself
	}
	path := filepath.Join(n.dir, "weir.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err //nolint:wrapcheck // the command names itself
	}
	log, err := os.Create(filepath.Join(n.dir, "log"))
	if err != nil {
		return err //nolint:wrapcheck // the command names itself
	}
	defer log.Close()                                                        //nolint:errcheck // the process has it
	n.process = exec.CommandContext(ctx, program, "serve", "--config", path, //nolint:gosec // ourselves
		"--http", "127.0.0.1:0", "--state", stateNone, "--log-level", "error")
	n.process.Stderr = log
	printed, err := n.process.StdoutPipe()
	if err != nil {
		return err //nolint:wrapcheck // the command names itself
	}
	n.printed = bufio.NewScanner(printed)
	return n.process.Start() //nolint:wrapcheck // the command names itself
}

// freePorts returns the first of n ports in a row that are free on the loopback address. They are below those that systems give
// to programs which do not care, so that none of these takes one before the node does.
func freePorts(ctx context.Context, n int) (int, error) {
	const lowest, highest, tries = 11_000, 31_000, 1000
	var err error
	for range tries {
		first := lowest + rand.IntN(highest-lowest) //nolint:gosec // which ports are used is no secret
		if err = free(ctx, first, n); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("there are no %d free ports in a row: %w", n, err)
}

// free listens on n ports from first on, all at a time, for a moment.
func free(ctx context.Context, first, n int) error {
	if n == 0 {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", first))
	if err != nil {
		return err //nolint:wrapcheck // for freePorts
	}
	defer l.Close() //nolint:errcheck // nothing was taken from it
	return free(ctx, first+1, n-1)
}

// owner returns the node that owns the limit, once all that are up know of it.
func (f *demoFleet) owner(ctx context.Context) (*demoNode, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("no node owns the limit after %v", demoPatience))
	defer cancel()
	for {
		var owner *demoNode
		known := true
		for _, n := range f.nodes {
			if n.gone {
				continue
			}
			var status struct {
				Cluster struct {
					Owns  bool   `json:"owns"`
					Owner string `json:"owner"`
				} `json:"cluster"`
			}
			err := n.client.Get(ctx, "/v1/status", nil, &status)
			if status.Cluster.Owns {
				owner = n
			}
			known = known && err == nil && status.Cluster.Owner != ""
		}
		if owner != nil && known {
			return owner, nil
		}
		if !clock.Sleep(ctx, demoRetry) {
			return nil, context.Cause(ctx)
		}
	}
}

// demoTraffic is what clients were told.
type demoTraffic struct {
	clients sync.WaitGroup
	begun   time.Time

	mu        sync.Mutex
	allowed   int
	last      time.Time     // of the last decision, or the kill if that was later
	killed    bool          // whether the owner was
	undecided time.Duration // the longest time without a decision after that
}

// ask asks as a client does, one node after the other, until ctx ends.
func (f *demoFleet) ask(ctx context.Context, first int, t *demoTraffic) {
	for i := first; ctx.Err() == nil; i++ {
		status := demoPost(ctx, f.http, f.nodes[i%len(f.nodes)].client.Server()+"/v1/check", demoCheck)
		if status == http.StatusOK || status == http.StatusTooManyRequests {
			t.decided(status == http.StatusOK)
			continue
		}
		clock.Sleep(ctx, demoRetry) // the loop sees the end of ctx
	}
}

func (t *demoTraffic) decided(allowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.killed {
		t.undecided = max(t.undecided, now.Sub(t.last))
	}
	t.last = now
	if allowed {
		t.allowed++
	}
}

// kills says that the owner is killed now, and returns how many requests were allowed so far.
func (t *demoTraffic) kills() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.killed, t.last = true, time.Now()
	return t.allowed
}

// tell writes what became of the limit, when no client asks any more. More than it allows is an error.
func (t *demoTraffic) tell(out io.Writer, owner, next *demoNode) error {
	t.undecided = max(t.undecided, time.Since(t.last))
	took := t.last.Sub(t.begun)
	limit := demoBurst + int(demoPerSecond*took.Seconds())
	for _, line := range [][2]string{
		{"owner", owner.name + ", then " + next.name},
		{"undecided", fmt.Sprintf("for %.1f s after the kill", t.undecided.Seconds())},
		{"allowed", fmt.Sprintf("%d requests in %.1f s", t.allowed, took.Seconds())},
		{"at most", fmt.Sprintf("%d in that time by the limit, %d/s burst %d", limit, demoPerSecond, demoBurst)},
	} {
		fmt.Fprintf(out, "%s  %s\n", terminal.Of(out).Bold(fmt.Sprintf("%9s", line[0])), line[1])
	}
	if t.allowed > limit {
		return fmt.Errorf("%d requests were allowed, and the limit allows %d", t.allowed, limit)
	}
	return nil
}
