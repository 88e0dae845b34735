//go:build linux

package soak

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirhq/weir/lab/interop/internal/servers"
)

// verb is what a request is for.
type verb int

const (
	take verb = iota
	takeAll
	reserve
	commit
	cancel
	refund
	resets
)

// charge is permits of a key.
type charge struct {
	policy, key string
	n           int64
}

// request is what is asked of a node.
type request struct {
	verb    verb
	charges []charge // one, or several of takeAll
	wait    time.Duration
	expires time.Duration
	id      string
	actual  int64
}

// outcome is what became of a request, as far as its client knows.
type outcome int

const (
	granted   outcome = iota
	limited           // refused, as the permits are not there
	refused           // refused for another reason: nothing was taken
	unknown           // the answer was lost
	unreached         // the request never reached a node
	wrong             // the answer is none that should be
)

// Reasons that are answered, or that stand for an answer.
const (
	reasonNone        = "none"
	reasonUnavailable = "unavailable"
)

// answer is that to a request.
type answer struct {
	outcome outcome
	// reason is why it was refused, or what failed.
	reason string
	// binding is the policy, and if it has several limits "/" and the limit, that refused.
	binding    string
	retryAfter time.Duration
	id         string
	expires    time.Duration
}

// front is a protocol by which a node is asked.
type front interface {
	// speaks reports whether it has a word for the request.
	speaks(r *request) bool
	do(ctx context.Context, r *request) answer
	close()
}

// clients are all clients of one process of a node.
type clients struct {
	fronts []front
	admin  *httpFront
	conns  *connections
}

func connect(a servers.Addresses) (*clients, error) {
	conns := &connections{open: make(map[net.Conn]struct{})}
	admin := newHTTPFront(a.HTTP, conns)
	grpc, err := newGRPCFront(a.GRPC, conns)
	if err != nil {
		return nil, err
	}
	return &clients{fronts: []front{admin, newRESPFront(a.RESP, conns), grpc}, admin: admin, conns: conns}, nil
}

func (c *clients) close() {
	for _, f := range c.fronts {
		f.close()
	}
}

// mostIdle is how many connections a client keeps that it does not need. While a node stands still it makes many more, which
// would look like files and goroutines that the node does not let go if it kept them.
const mostIdle = 8

// connections are those of clients of a node.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// tracked is a connection that can be cut.
type tracked struct {
	net.Conn

	of *connections
}

func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

func (c *connections) dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t := &tracked{Conn: conn, of: c}
	c.mu.Lock()
	c.open[t] = struct{}{}
	c.mu.Unlock()
	return t, nil
}

// cut resets all connections.
func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		t, ok := conn.(*tracked)
		if !ok {
			continue
		}
		if tcp, ok := t.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it is closed then as any other is
		}
		_ = t.Conn.Close() // its user closes it again
	}
}

// failed is the answer where a call failed.
func failed(err error) answer {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(text, "connection refused"):
		return answer{outcome: unreached, reason: "connection refused"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		strings.Contains(text, "DeadlineExceeded"), strings.Contains(text, "i/o timeout"):
		return answer{outcome: unknown, reason: "no answer in time"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(text, "EOF"),
		strings.Contains(text, "closed"), strings.Contains(text, "reset by peer"), strings.Contains(text, "broken pipe"):
		return answer{outcome: unknown, reason: "connection lost"}
	}
	return answer{outcome: unknown, reason: text}
}

// said is the answer that a reason stands for.
func said(allowed bool, reason string) answer {
	a := answer{reason: reason}
	switch reason {
	case reasonNone:
		a.outcome = granted
	case "limited":
		a.outcome = limited
	case "queue-full", "deadline", "table-full", "overloaded":
		a.outcome = refused
	case reasonUnavailable, "closed":
		a.outcome = unknown
	default:
		a.outcome = wrong
	}
	if allowed != (a.outcome == granted) {
		a.outcome, a.reason = wrong, "allowed with the reason "+reason
	}
	return a
}
