package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/etcd/forward"
)

// durableCluster is etcd with fsync in this process, alone or with one in each of two other processes.
type durableCluster struct {
	kind    string
	dir     string
	server  *etcd.Server
	members []*exec.Cmd
	leashes []io.Closer
}

// The kinds of clusters.
const (
	oneNode    = "one node"
	threeNodes = "three nodes"
)

// memberOptions are those of a process of the cluster.
type memberOptions struct {
	Directory string            `json:"directory"`
	Name      string            `json:"name"`
	Peers     map[string]string `json:"peers"`
	// Owners are the limits that the process owns, by prefix, with their K.
	Owners map[string]int64 `json:"owners"`
}

// memberVariable makes a process that calls ServeMember a member of a cluster.
const memberVariable = "WEIR_BENCH_MEMBER"

// memberReady is what a member says on its standard output when it is one.
const memberReady = "ready\n"

// ServeMember makes this process a member of a cluster that another process measures, if that has started it as one, until its
// standard input ends, or a server that another process compares with weir's, until that kills it, and reports whether it was.
// Programs that measure durable limits or servers must call it first.
func ServeMember() bool {
	if serveWire() {
		return true
	}
	text := os.Getenv(memberVariable)
	if text == "" {
		return false
	}
	var o memberOptions
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.serve(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "weir: bench: a member of the cluster: %v\n", err)
	}
	return true
}

func (o *memberOptions) serve(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	s, err := etcd.Start(ctx, etcd.EmbeddedOptions{Directory: o.Directory, Name: o.Name, Peers: o.Peers})
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	var ends []func()
	defer func() { //nolint:contextcheck // it ends what has a context of its own
		for _, end := range slices.Backward(ends) {
			end()
		}
		err = errors.Join(err, s.Close())
	}()
	for prefix, reserve := range o.Owners {
		var end func()
		if end, err = own(ctx, s, prefix, reserve); err != nil {
			return err
		}
		ends = append(ends, end)
	}
	if _, err = io.WriteString(stdout, memberReady); err != nil {
		return fmt.Errorf("say that the member is ready: %w", err)
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// own makes this process the owner of the limits below a prefix, which others reach by gRPC.
func own(ctx context.Context, s *etcd.Server, prefix string, reserve int64) (end func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for other nodes: %w", err)
	}
	n, closeNode, err := newNode(s, prefix, durable.NodeOptions{ //nolint:contextcheck // it lasts until it is closed
		Address: l.Addr().String(), Owner: durable.OwnerOptions{Reserve: reserve},
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	server := grpc.NewServer()
	forward.Register(server, n)         //nolint:contextcheck // each stream has a context of its own
	go func() { _ = server.Serve(l) }() // until Stop
	return func() { server.Stop(); closeNode() }, nil
}

// patientTTL is how long a term outlasts its last sign of life: so long that a busy machine ends no measurement. It is no part of
// any figure.
const patientTTL = 10 * time.Second

// newNode is a node over the server of this process.
func newNode(s *etcd.Server, prefix string, o durable.NodeOptions) (n *durable.Node, end func(), err error) {
	engine, err := etcd.New(s.Client(), etcd.Options{Prefix: prefix, TTL: patientTTL})
	if err != nil {
		return nil, nil, fmt.Errorf("%w", err)
	}
	o.Engine, o.Dial = engine, forward.Dial(forward.DialOptions{})
	if n, err = durable.NewNode(o); err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	return n, func() { _ = n.Close(); _ = engine.Close() }, nil
}

// The prefixes of limits that another process owns, with a K of 1 and an adaptive one.
const (
	farOne      = "/far-one/"
	farAdaptive = "/far-adaptive/"
)

// clusterPatience is how long a cluster may take until it can be used, and each of its processes until it has ended.
const clusterPatience = 2 * time.Minute

// startCluster starts a cluster whose data is on a disk. close must be called.
func startCluster(ctx context.Context, kind string) (c *durableCluster, err error) {
	c = &durableCluster{kind: kind}
	defer func() { //nolint:contextcheck // closing is not to be cut short by what made starting fail
		if err != nil {
			c.close()
			c = nil
		}
	}()
	place, err := onDisk()
	if err != nil {
		return c, err
	}
	if c.dir, err = os.MkdirTemp(place, ".weir-bench-durable-"); err != nil {
		return c, fmt.Errorf("bench: a directory for etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	o := etcd.EmbeddedOptions{Directory: filepath.Join(c.dir, "a"), Name: "a"}
	if kind == threeNodes {
		if o.Peers, err = freePeers(ctx, "a", "b", "c"); err != nil {
			return c, err
		}
		ready := make(chan error, 2) //nolint:mnd // the other two
		for _, m := range []memberOptions{
			{filepath.Join(c.dir, "b"), "b", o.Peers, map[string]int64{farOne: 1, farAdaptive: 0}},
			{filepath.Join(c.dir, "c"), "c", o.Peers, nil},
		} {
			err = c.startMember(m, ready) //nolint:contextcheck // it outlives the context, as close ends it
			if err != nil {
				return c, err
			}
		}
		if c.server, err = etcd.Start(ctx, o); err != nil {
			return c, fmt.Errorf("bench: %w", err)
		}
		for range 2 {
			select {
			case err = <-ready:
			case <-ctx.Done():
				err = fmt.Errorf("bench: a member of the cluster is not ready: %w", ctx.Err())
			}
			if err != nil {
				return c, err
			}
		}
		return c, nil
	}
	if c.server, err = etcd.Start(ctx, o); err != nil {
		return c, fmt.Errorf("bench: %w", err)
	}
	return c, nil
}

// startMember starts this program as a member. It ends with its standard input, which is when this process ends at the latest.
func (c *durableCluster) startMember(m memberOptions, ready chan<- error) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench: find this program: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("bench: the options of a member: %w", err)
	}
	//nolint:gosec // it is this program; close ends it, which must not be before its cluster is not needed any more
	cmd := exec.CommandContext(context.Background(), program)
	cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	ownGroup(cmd)
	leash, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("bench: a member: %w", err)
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("bench: a member: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("bench: start a member: %w", err)
	}
	c.members, c.leashes = append(c.members, cmd), append(c.leashes, leash)
	go func() { // ends when the process does
		first := make([]byte, len(memberReady))
		if _, err := io.ReadFull(says, first); err != nil || string(first) != memberReady {
			ready <- fmt.Errorf("bench: the member %s says %q: %w", m.Name, first, errors.Join(err, errMember))
			return
		}
		ready <- nil
	}()
	return nil
}

var errMember = errors.New("a program that measures durable limits must call ServeMember first")

// The ports of members. Those that a system chooses by itself, for connections or for listeners that want any port, are above.
const (
	firstPort = 10_000
	mostPorts = 22_000
)

// freePeers are URLs of ports that are free, and stay free until the members listen there.
func freePeers(ctx context.Context, names ...string) (map[string]string, error) {
	peers := map[string]string{}
	var taken []net.Listener // until there is one for each name, so that no two get the same port
	defer func() {
		for _, l := range taken {
			_ = l.Close()
		}
	}()
	port := rand.IntN(mostPorts) //nolint:gosec // any will do
	for _, name := range names {
		var (
			l   net.Listener
			err error
		)
		for tried := 0; l == nil && tried < mostPorts && ctx.Err() == nil; tried++ {
			port = (port + 1) % mostPorts
			l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprint("127.0.0.1:", firstPort+port))
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("bench: a port for etcd: %w", err)
		}
		taken = append(taken, l)
		peers[name] = "http://" + l.Addr().String()
	}
	return peers, nil
}

// close ends the cluster, the other processes too, and removes its data.
func (c *durableCluster) close() {
	if c == nil {
		return
	}
	if c.server != nil { // one after the other, so that each can hand over what it leads
		_ = c.server.Close()
	}
	for i, m := range c.members {
		_ = c.leashes[i].Close()
		killer := time.AfterFunc(clusterPatience, func() { _ = m.Process.Kill() })
		_ = m.Wait()
		killer.Stop()
	}
	for range 20 { // what was ended a moment ago may still write a file
		if c.dir == "" || os.RemoveAll(c.dir) == nil {
			break
		}
		pause(context.Background(), 50*time.Millisecond)
	}
}

// written is the revision once all that was begun to write has been written, after a write of its own.
func (c *durableCluster) written(ctx context.Context) (int64, error) {
	r, err := c.server.Client().Put(ctx, "written", "")
	if err != nil {
		return 0, fmt.Errorf("bench: a write to etcd: %w", err)
	}
	return r.Header.GetRevision(), nil
}

// revision is that of all that etcd keeps: each transaction that writes something raises it by one.
func (c *durableCluster) revision(ctx context.Context) (int64, error) {
	r, err := c.server.Client().Get(ctx, "none")
	if err != nil {
		return 0, fmt.Errorf("bench: the revision of etcd: %w", err)
	}
	return r.Header.GetRevision(), nil
}
