//go:build linux

package etcd_test

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
)

// nodeVariable has the test binary be a node of a cluster, which its value describes.
const nodeVariable = "WEIR_TEST_NODE"

// testSegment is the size of the segments of etcd's log in tests, otherwise 64 MB, so that TestCannotGoOn soon needs a further one.
const testSegment = 6 << 20

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		os.Exit(runNode(text))
	}
	wal.SegmentSizeBytes = testSegment
	// Most of these tests wait, for elections and for disks.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// nodeConfig describes a node that is a process of its own.
type nodeConfig struct {
	Index     int
	Directory string
	Unsynced  bool // nothing is lost by that as long as it is processes that die, and no machine
	Peers     map[string]string
	Name      string
	Listen    string // the URL for the etcd servers of the others
	Forward   string // where it listens for requests of the others
	Address   string // what they reach that by
	Clients   string // where it listens for clients of etcd
	Reserve   int64
	Segment   int64 // the size of the segments of etcd's log

	TTL, OwnerWait, WriteTimeout time.Duration
	Heartbeat                    time.Duration // of the leader of etcd
}

// command is what the test tells a node.
type command struct {
	Kind string // load, stop
	Load loadConfig
}

// report is what a node tells the test.
type report struct {
	Kind  string // failed, ready, broken, owns, event, stopped, log
	Text  string
	Epoch int64
	At    int64
	Event event
}

// reports writes what a node reports, each at once, so that what was reported survives its end.
type reports struct {
	mu  sync.Mutex
	enc *gob.Encoder
}

func (r *reports) send(x report) {
	x.At = monotonic()
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.enc.Encode(&x) // the test has gone, and so will this process
}

// monotonic is a time in nanoseconds that is common to all processes of the machine.
func monotonic() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

// Enabled, Handle, WithAttrs and WithGroup implement [slog.Handler].
func (r *reports) Enabled(context.Context, slog.Level) bool { return true }

// Handle reports a line of the log, and terms that begin.
func (r *reports) Handle(_ context.Context, line slog.Record) error {
	text := line.Message
	x := report{Kind: "log"}
	line.Attrs(func(a slog.Attr) bool {
		if a.Key == "epoch" && line.Message == "this node owns the limits" {
			x.Kind, x.Epoch = "owns", a.Value.Int64()
		}
		text += fmt.Sprintf(" %v", a)
		return true
	})
	x.Text = text
	r.send(x)
	return nil
}

// WithAttrs implements [slog.Handler].
func (r *reports) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements [slog.Handler].
func (r *reports) WithGroup(string) slog.Handler { return r }

// runNode is a node until its standard input ends.
func runNode(text string) int {
	out := &reports{enc: gob.NewEncoder(os.Stdout)}
	if err := serveNode(text, os.Stdin, out); err != nil {
		out.send(report{Kind: "failed", Text: err.Error()})
		return 1
	}
	return 0
}

func serveNode(text string, in io.Reader, out *reports) error {
	var c nodeConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil { //nolint:musttag // it was written by the same type
		return err
	}
	signal.Ignore(syscall.SIGXFSZ) // so that a write that is too large fails
	if c.Segment > 0 {
		wal.SegmentSizeBytes = c.Segment
	}
	ctx := context.Background()
	joined, err := etcd.Join(ctx, etcd.ClusterOptions{
		Directory: c.Directory, Name: c.Name, Peers: c.Peers, Listen: c.Listen, UnsafeNoFsync: c.Unsynced,
		StartTimeout: startDelay - 5*time.Second,
		Address:      c.Address, ListenAddress: c.Forward, Logger: slog.New(out),
		TTL: c.TTL, OwnerWait: c.OwnerWait, HeartbeatInterval: c.Heartbeat,
		Owner: durable.OwnerOptions{Reserve: c.Reserve, WriteTimeout: c.WriteTimeout, Logger: slog.New(out)},
	})
	if err != nil {
		return err
	}
	defer joined.Close()
	node, client := joined.Node(), joined.Server().Client()
	go func() {
		<-joined.Failed()
		out.send(report{Kind: "broken", Text: fmt.Sprint(joined.Server().Err())})
	}()

	// Clients outside of the cluster reach its etcd here, which an embedded server does not offer.
	kv, _ := grpcproxy.NewKvProxy(client)
	watch, _ := grpcproxy.NewWatchProxy(ctx, zap.NewNop(), client)
	clients := grpc.NewServer()
	pb.RegisterKVServer(clients, kv)
	pb.RegisterWatchServer(clients, watch)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Clients)
	if err != nil {
		return err
	}
	go func() { _ = clients.Serve(listener) }()
	defer clients.Stop()
	out.send(report{Kind: "ready"})

	var l *load
	commands := gob.NewDecoder(in)
	for {
		var x command
		if err := commands.Decode(&x); err != nil {
			return nil // the test has ended
		}
		switch x.Kind {
		case "load":
			l = startLoad(node, c.Index, x.Load, func(e event) { out.send(report{Kind: "event", Event: e}) })
		case "stop":
			if l != nil {
				l.stop()
				l = nil
			}
			out.send(report{Kind: "stopped"})
		}
	}
}
