package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/policy"
)

// Kind is a front whose clients send the key of the policy "default" in a line, and get "yes" or "no".
func Kind() *front.Kind {
	return &front.Kind{
		Name: "line", Usual: "127.0.0.1:7072", Usage: "address for clients that send lines", Silent: "may be silent", Connections: 100,
		New: func(s front.Shared) (front.Made, error) {
			return front.Made{Front: &lineFront{Shared: s, open: make(map[net.Conn]struct{})}}, nil
		},
	}
}

// lineFront serves them.
type lineFront struct {
	front.Shared

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]struct{}
	running  sync.WaitGroup
}

// Serve implements [front.Front].
func (l *lineFront) Serve(listener net.Listener) error {
	l.mu.Lock()
	l.listener = l.Bound().On(listener)
	l.mu.Unlock()
	for {
		c, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.open[c] = struct{}{}
		l.mu.Unlock()
		l.running.Go(func() { l.serve(c) })
	}
}

// serve decodes, asks and encodes.
func (l *lineFront) serve(c net.Conn) {
	defer c.Close()
	for read := bufio.NewScanner(c); read.Scan(); {
		var v policy.Verdict
		l.Limits.Engine().Take(&policy.Request{Named: &policy.Named{Policy: []byte("default"), Key: read.Bytes(), Cost: 1}}, &v)
		text := "no\n"
		if v.Allowed {
			text = "yes\n"
		}
		v.Release()
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// Drain implements [front.Front].
func (*lineFront) Drain() (inFlight int64) { return 0 }

// Shutdown implements [front.Front].
func (l *lineFront) Shutdown(context.Context) error {
	l.mu.Lock()
	_ = l.listener.Close()
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
	return nil
}

// TestAnotherFront: a front of a folder of its own and one line in kinds is all that CONTRIBUTING.md asks for.
func TestAnotherFront(t *testing.T) {
	page, err := os.ReadFile("../../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("toy_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "## How to add a front\n")
	_, shown, _ = strings.Cut(shown, "```go\n")
	if shown, _, _ = strings.Cut(shown, "```"); shown == "" || !strings.Contains(string(source), shown) {
		t.Error("CONTRIBUTING.md shows another front than this one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var o options
	server := o.command([]*front.Kind{Kind()})
	server.SetArgs([]string{"--http", "127.0.0.1:0", "--line", "127.0.0.1:0", "--burst", "2", "--limit", "1/h"})
	server.SetOut(in)
	server.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- server.ExecuteContext(ctx) }()
	printed := bufio.NewScanner(out)
	address := ""
	for found := false; !found && printed.Scan(); {
		address, found = strings.CutPrefix(printed.Text(), "line ")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewScanner(c)
	for _, want := range []string{"yes", "yes", "no"} {
		if _, err := io.WriteString(c, "alice\n"); err != nil || !answers.Scan() || answers.Text() != want {
			t.Fatalf("%q, %v, want %s", answers.Text(), err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"http", "line"} {
		if err := server.Flags().Set(name, "127.0.0.1:7070"); err != nil {
			t.Error(err)
		}
	}
	if o.check(server.Flags()) == nil {
		t.Error("two fronts may have one address")
	}
}
