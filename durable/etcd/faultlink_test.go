//go:build linux

package etcd_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// links is the network between the processes of a cluster: every connection goes through it, and can be cut by the nodes at its
// ends.
type links struct {
	wait sync.WaitGroup

	lock      sync.Mutex
	changed   chan struct{} // closed when a link is cut or mended, or a connection ends
	pids      [processes]int
	how       [processes][processes]cut
	pairs     map[*pair]struct{}
	listeners []net.Listener
	closed    bool
}

// cut is how a link is cut.
type cut int

const (
	whole   cut = iota
	refused     // connections are reset, and new ones too
	silent      // nothing comes through until the link is mended: then all that was sent does
)

// pair is a connection through a link.
type pair struct {
	to             int
	known          bool // where it is from, as is asked once it matters
	from           int  // -1 if it is from none of the processes
	client, server net.Conn
	ended          bool
}

func newLinks(tb testing.TB) *links {
	l := &links{changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	l.pids[testProcess] = os.Getpid()
	tb.Cleanup(l.close)
	return l
}

// to is an address that leads to another, which belongs to a process.
func (l *links) to(tb testing.TB, process int, target string) string {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l.lock.Lock()
	l.listeners = append(l.listeners, listener)
	l.lock.Unlock()
	l.wait.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.wait.Go(func() { l.connect(c, process, target) })
		}
	})
	return listener.Addr().String()
}

// started tells which process a node is.
func (l *links) started(process, pid int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.pids[process] = pid
}

// connect hands on what comes.
func (l *links) connect(c net.Conn, to int, target string) {
	p := &pair{to: to, client: c}
	if !l.enter(p) {
		reset(c)
		return
	}
	defer l.end(p)
	if !l.passable(p) {
		return
	}
	server, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	l.lock.Lock()
	p.server = server
	ended := p.ended
	l.lock.Unlock()
	if ended {
		reset(server)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pass(p, server, c) })
	both.Go(func() { l.pass(p, c, server) })
	both.Wait()
}

// link is how the link of a pair is cut; refused if it is from none of the processes. The lock must be held.
func (l *links) link(p *pair) cut {
	switch {
	case !p.known:
		return whole
	case p.from < 0:
		return refused
	}
	return l.how[p.from][p.to]
}

// know finds out where a pair is from, if a link to its process is cut. That takes the system milliseconds, and clusters make thousands
// of connections: those of the tests that cut no link need not be known.
func (l *links) know(p *pair) {
	l.lock.Lock()
	needed, pids := false, l.pids
	for from := range l.how {
		needed = needed || !p.known && l.how[from][p.to] != whole
	}
	l.lock.Unlock()
	if !needed {
		return
	}
	from := origin(p.client, pids)
	l.lock.Lock()
	defer l.lock.Unlock()
	p.from, p.known = from, true
}

// origin is the process at the other end of a connection, -1 if it is none of them.
func origin(c net.Conn, pids [processes]int) int {
	port := c.RemoteAddr().(*net.TCPAddr).Port                    //nolint:forcetypeassert // of a listener for TCP
	inode := socketInode(port, c.LocalAddr().(*net.TCPAddr).Port) //nolint:forcetypeassert // of a listener for TCP
	if inode == "" {
		return -1
	}
	for process, pid := range pids {
		if pid == 0 {
			continue
		}
		files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, f := range files {
			if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name())); to == "socket:["+inode+"]" {
				return process
			}
		}
	}
	return -1
}

// socketInode is that of the socket which is connected from one port of this machine to the other.
func socketInode(from, to int) string {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", from)) && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", to)) {
				return fields[9]
			}
		}
	}
	return ""
}

func (l *links) enter(p *pair) bool {
	l.know(p)
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.closed || l.link(p) == refused {
		return false
	}
	l.pairs[p] = struct{}{}
	return true
}

// passable waits while the link is silent, and reports whether the connection goes on.
func (l *links) passable(p *pair) bool {
	for {
		l.know(p)
		l.lock.Lock()
		how, ended, changed := l.link(p), p.ended, l.changed
		l.lock.Unlock()
		if ended || how == refused {
			return false
		}
		if how == whole {
			return true
		}
		<-changed
	}
}

func (l *links) pass(p *pair, to, from net.Conn) {
	defer l.end(p)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !l.passable(p) {
				return
			}
			if _, failed := to.Write(buf[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			l.passable(p) // the end is not heard of either
			return
		}
	}
}

func (l *links) end(p *pair) {
	l.lock.Lock()
	delete(l.pairs, p)
	if !p.ended {
		p.ended = true
		l.wake()
	}
	server := p.server
	l.lock.Unlock()
	reset(p.client)
	if server != nil {
		reset(server)
	}
}

func (l *links) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// set cuts links, or mends them, in both directions between a process and others.
func (l *links) set(how cut, process int, others ...int) {
	l.lock.Lock()
	for _, other := range others {
		if other != process {
			l.how[process][other], l.how[other][process] = how, how
		}
	}
	all := slices.Collect(maps.Keys(l.pairs))
	l.wake()
	l.lock.Unlock()
	for _, p := range all {
		l.know(p)
	}
	l.lock.Lock()
	var ended []*pair
	for p := range l.pairs {
		if l.closed || l.link(p) == refused {
			ended = append(ended, p)
		}
	}
	l.lock.Unlock()
	for _, p := range ended {
		l.end(p)
	}
}

func (l *links) close() {
	l.lock.Lock()
	l.closed = true
	for _, listener := range l.listeners {
		_ = listener.Close()
	}
	l.lock.Unlock()
	l.set(whole, 0)
	l.wait.Wait()
}
