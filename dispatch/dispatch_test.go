package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/tiers"
)

// testConn is a connection that keeps what it is told.
type testConn struct {
	peer *dispatch.Peer

	mu   sync.Mutex
	told []dispatch.Notice
}

func (c *testConn) notify(_ context.Context, _ *testConn, n dispatch.Notice) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, n)
	return nil
}

func (c *testConn) reasons() (all []weir.Reason) {
	for _, n := range c.told {
		all = append(all, n.Decision.Reason)
	}
	return all
}

// connFrom is a connection from an endpoint.
func connFrom(endpoint string) *testConn {
	return &testConn{peer: dispatch.NewPeer(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(endpoint)))}
}

type testMessage struct {
	op   uint64
	text string
}

// bench is a dispatcher in a time of its own.
type bench struct {
	*dispatch.Dispatcher[*testConn, testMessage]

	clock *manualclock.Clock
	ts    *tiers.Tiers
	g     *guard.Guard
}

var alice = netip.MustParseAddr("192.0.2.1")

func attribute(rps, burst int) *tiers.Attribute {
	return &tiers.Attribute{RPS: float64(rps), Burst: float64(burst)}
}

func newBench(t *testing.T, changes ...func(*dispatch.Options[*testConn, testMessage])) bench {
	t.Helper()
	clock := new(manualclock.Clock)
	ts, err := tiers.New(tiers.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ts.Close() })
	o := guard.DefaultOptions()
	o.Clock, o.CapacityTokens, o.RefillTokensPerSecond = clock, 3, 1
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	options := dispatch.Options[*testConn, testMessage]{
		Guard: g, Tiers: ts, Clock: clock,
		Op:   func(m testMessage) uint64 { return m.op },
		Peer: func(c *testConn) *dispatch.Peer { return c.peer },
		Notify: func(ctx context.Context, c *testConn, n dispatch.Notice) error {
			return c.notify(ctx, c, n)
		},
	}
	for _, change := range changes {
		change(&options)
	}
	d, err := dispatch.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return bench{d, clock, ts, g}
}

// counting is a handler that counts its calls.
func counting(n *int) dispatch.Handler[*testConn, testMessage] {
	return func(context.Context, *testConn, testMessage) error { *n++; return nil }
}

func (d bench) handle(t *testing.T, op uint64, a *tiers.Attribute) (calls *int) {
	t.Helper()
	calls = new(int)
	if err := d.Handle(op, a, counting(calls)); err != nil {
		t.Fatal(err)
	}
	return calls
}

func (d bench) send(t *testing.T, c *testConn, op uint64, times int) {
	t.Helper()
	for range times {
		if err := d.Dispatch(t.Context(), c, testMessage{op: op}); err != nil {
			t.Error(err)
		}
	}
}

func TestDispatcherAttributeChoosesTheLimit(t *testing.T) {
	d := newBench(t)
	login, ping, other := d.handle(t, 1, attribute(1, 2)), d.handle(t, 2, nil), d.handle(t, 3, nil)
	c := connFrom("192.0.2.1:1000")
	d.send(t, c, 1, 10)
	d.send(t, c, 2, 2)
	d.send(t, c, 3, 10)
	if *login != 2 || *ping != 2 || *other != 1 {
		t.Errorf("%d, %d, %d handled: want 2 of the tier, and 3 of the guard together", *login, *ping, *other)
	}
	if d := d.ts.Check(attribute(1, 2), 1, alice); d.Allowed {
		t.Error("the subject was not opcode 1 and the address")
	}
	if n := d.ts.Report().Checks; n != 11 {
		t.Errorf("%d checks of the tiers", n)
	}
}

func TestDispatcherPortRotationDoesNotHelp(t *testing.T) {
	d := newBench(t)
	login, ping := d.handle(t, 1, attribute(1, 2)), d.handle(t, 2, nil)
	for port := range 50 {
		c := connFrom(fmt.Sprintf("192.0.2.1:%d", 1000+port))
		d.send(t, c, 1, 1)
		d.send(t, c, 2, 1)
	}
	if *login != 2 || *ping != 3 {
		t.Errorf("%d, %d handled", *login, *ping)
	}
	c := connFrom("192.0.2.2:1000")
	d.send(t, c, 1, 1)
	d.send(t, c, 2, 1)
	if *login != 3 || *ping != 4 {
		t.Errorf("%d, %d handled with another address", *login, *ping)
	}
}

func TestDispatcherNoticesOncePerCooldownAndKind(t *testing.T) {
	d := newBench(t)
	d.handle(t, 1, attribute(1, 1))
	c, other := connFrom("192.0.2.1:1000"), connFrom("192.0.2.1:1001")
	d.send(t, c, 1, 2) // the second is refused, and told
	want := dispatch.Notice{Op: 1, Decision: d.tiersDecision(weir.ReasonSoftThrottle, time.Second)}
	if !slices.Equal(c.told, []dispatch.Notice{want}) {
		t.Fatalf("%+v, want %+v", c.told, want)
	}
	d.send(t, c, 1, 1) // in silence
	d.send(t, c, 1, 1) // the third violation is a hard one, which is another kind
	d.send(t, c, 1, 50)
	if got := c.reasons(); !slices.Equal(got, []weir.Reason{weir.ReasonSoftThrottle, weir.ReasonHardLockout}) {
		t.Fatal(got)
	}
	d.send(t, other, 1, 3) // another connection of the same address is told by itself
	if got := other.reasons(); len(got) != 2 {
		t.Error(got)
	}
	d.clock.Advance(200*time.Millisecond - 1)
	d.send(t, c, 1, 3)
	if got := c.reasons(); len(got) != 2 {
		t.Errorf("told before the cooldown was over: %v", got)
	}
	d.clock.Advance(1)
	d.send(t, c, 1, 6)
	if got := c.reasons(); len(got) != 4 {
		t.Errorf("not told after the cooldown: %v", got)
	}
	s := d.Stats()
	wantOps := []dispatch.OpStats{{Op: 1, Passed: 1, Soft: s.Ops[0].Soft, Hard: s.Ops[0].Hard}}
	if !slices.Equal(s.Ops, wantOps) || s.Ops[0].Soft+s.Ops[0].Hard != 65 || s.Ops[0].Hard < 20 || s.Notices != 6 || s.Silent != 59 {
		t.Errorf("%+v", s)
	}
}

// tiersDecision is a refusal of the tier 1/s burst 1 that is empty.
func (d bench) tiersDecision(r weir.Reason, retry time.Duration) weir.Decision {
	return weir.Decision{Reason: r, Limit: 1, RetryAfter: retry, ResetAfter: retry, Policy: "1/s burst 1"}
}

func TestDispatcherCooldownIsAnOption(t *testing.T) {
	d := newBench(t, func(o *dispatch.Options[*testConn, testMessage]) { o.Cooldown = time.Minute })
	d.handle(t, 1, &tiers.Attribute{RPS: 1})
	c := connFrom("192.0.2.1:1000")
	for range 120 {
		d.send(t, c, 1, 1)
		d.clock.Advance(time.Second)
	}
	if len(c.told) != 2 || c.told[0].Decision.RetryAfter != weir.Never {
		t.Errorf("%+v", c.told)
	}
}

func TestDispatcherNoticesWhenTheClockGoesBack(t *testing.T) {
	d := newBench(t)
	d.handle(t, 1, &tiers.Attribute{RPS: 1})
	c := connFrom("192.0.2.1:1000")
	d.clock.Advance(time.Hour)
	d.send(t, c, 1, 2)
	d.clock.Advance(-100 * time.Millisecond)
	d.send(t, c, 1, 2)
	if len(c.told) != 1 {
		t.Errorf("told %d times", len(c.told))
	}
	d.clock.Advance(-time.Minute)
	d.send(t, c, 1, 2)
	if len(c.told) != 2 {
		t.Errorf("silent until the clock has caught up: told %d times", len(c.told))
	}
}

func TestDispatcherUnknownOpcode(t *testing.T) {
	d := newBench(t)
	c := connFrom("192.0.2.1:1000")
	for i := range 3 {
		err := d.Dispatch(t.Context(), c, testMessage{op: 77})
		if !errors.Is(err, dispatch.ErrUnknownOp) || err.Error() != "weir: unknown opcode 77" {
			t.Errorf("%d: %v", i, err)
		}
	}
	d.send(t, c, 77, 5) // the guard has had enough
	if len(c.told) != 2 || c.told[0].Op != 77 {
		t.Errorf("%+v", c.told)
	}
	if s := d.Stats(); s.Unknown.Passed != 3 || s.Unknown.Soft+s.Unknown.Hard != 5 || len(s.Ops) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDispatcherErrors(t *testing.T) {
	failed, broken := errors.New("failed"), errors.New("broken pipe")
	d := newBench(t, func(o *dispatch.Options[*testConn, testMessage]) {
		o.Notify = func(context.Context, *testConn, dispatch.Notice) error { return broken }
	})
	if err := d.Handle(1, attribute(1, 1), func(context.Context, *testConn, testMessage) error { return failed }); err != nil {
		t.Fatal(err)
	}
	d.handle(t, 2, nil)
	c := connFrom("192.0.2.1:1000")
	for i, want := range []error{failed, broken, nil} {
		if err := d.Dispatch(t.Context(), c, testMessage{op: 1}); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
	if err := d.Dispatch(t.Context(), &testConn{}, testMessage{op: 1}); !errors.Is(err, dispatch.ErrNoPeer) {
		t.Error(err)
	}
	if err := d.Dispatch(t.Context(), &testConn{peer: new(dispatch.Peer)}, testMessage{op: 2}); !errors.Is(err, guard.ErrNoEndpoint) {
		t.Error(err)
	}
	if err := d.Dispatch(t.Context(), &testConn{peer: new(dispatch.Peer)}, testMessage{op: 1}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestDispatcherRegistration(t *testing.T) {
	d := newBench(t)
	calls := d.handle(t, 1, nil)
	noTiers := newBench(t, func(o *dispatch.Options[*testConn, testMessage]) { o.Tiers = nil })
	nan := &tiers.Attribute{RPS: math.NaN(), Burst: 1}
	_, err := d.Limit(1, nil)
	type handler = dispatch.Handler[*testConn, testMessage]
	keep, lose := func(next handler) handler { return next }, func(handler) handler { return nil }
	for _, c := range []struct {
		err  error
		want string
	}{
		{err, "weir: opcode 1 is registered twice: must be once"},
		{d.Handle(1, nil, counting(calls)), "weir: opcode 1 is registered twice: must be once"},
		{d.Handle(2, nil, nil), "weir: handler of opcode 2 is nil: must be given"},
		{
			d.Handle(2, nil, counting(calls), keep, nil),
			"weir: middleware 2 of opcode 2 is nil, or makes a handler that is: must be given",
		},
		{
			d.Handle(2, nil, counting(calls), lose, keep),
			"weir: middleware 1 of opcode 2 is nil, or makes a handler that is: must be given",
		},
		{d.Handle(3, nan, counting(calls)), "weir: opcode 3: weir: tiers.Attribute.RPS is NaN: must be a number"},
		{
			noTiers.Handle(4, attribute(1, 1), counting(calls)),
			"weir: opcode 4 has an attribute, but dispatch.Options.Tiers is nil: must be given",
		},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	for name, change := range map[string]func(*dispatch.Options[*testConn, testMessage]){
		"Guard is nil":     func(o *dispatch.Options[*testConn, testMessage]) { o.Guard = nil },
		"Op is nil":        func(o *dispatch.Options[*testConn, testMessage]) { o.Op = nil },
		"Peer is nil":      func(o *dispatch.Options[*testConn, testMessage]) { o.Peer = nil },
		"Cooldown is -1ns": func(o *dispatch.Options[*testConn, testMessage]) { o.Cooldown = -1 },
		"Cooldown is 1h1s": func(o *dispatch.Options[*testConn, testMessage]) { o.Cooldown = time.Hour + time.Second },
	} {
		o := dispatch.Options[*testConn, testMessage]{
			Guard: d.g, Op: func(testMessage) uint64 { return 0 }, Peer: func(*testConn) *dispatch.Peer { return nil },
		}
		change(&o)
		name = strings.ReplaceAll(name, "1h1s", "1h0m1s")
		if _, err := dispatch.New(o); err == nil || !strings.HasPrefix(err.Error(), "weir: dispatch.Options."+name+": must be") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDispatcherMiddleware(t *testing.T) {
	d := newBench(t)
	var order []string
	note := func(name string) dispatch.Middleware[*testConn, testMessage] {
		return func(next dispatch.Handler[*testConn, testMessage]) dispatch.Handler[*testConn, testMessage] {
			return func(ctx context.Context, c *testConn, m testMessage) error {
				order = append(order, name+" "+m.text)
				return next(ctx, c, m)
			}
		}
	}
	calls := 0
	if err := d.Handle(1, attribute(1, 1), counting(&calls), note("outer"), note("inner")); err != nil {
		t.Fatal(err)
	}
	c := connFrom("192.0.2.1:1000")
	for range 3 {
		if err := d.Dispatch(t.Context(), c, testMessage{1, "hello"}); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 || !slices.Equal(order, []string{"outer hello", "inner hello"}) {
		t.Errorf("%d calls, %q", calls, order)
	}

	limit, err := d.Limit(9, attribute(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	calls = 0
	mine := limit(counting(&calls))
	for range 5 {
		if err := mine(t.Context(), c, testMessage{op: 12345}); err != nil {
			t.Error(err)
		}
	}
	if s := d.Stats(); calls != 2 || s.Ops[1].Op != 9 || s.Ops[1].Passed != 2 || s.Ops[1].Soft+s.Ops[1].Hard != 3 {
		t.Errorf("%d calls, %+v", calls, s)
	}
	if err := d.Dispatch(t.Context(), c, testMessage{op: 9}); !errors.Is(err, dispatch.ErrUnknownOp) {
		t.Error(err)
	}
}

func TestDispatcherPanicLeavesNothingHeld(t *testing.T) {
	d := newBench(t)
	boom := func(context.Context, *testConn, testMessage) error { panic("boom") }
	if err := d.Handle(1, attribute(1, 2), boom); err != nil {
		t.Fatal(err)
	}
	c := connFrom("192.0.2.1:1000")
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		d.send(t, c, 1, 1)
	}()
	d.clock.Advance(1801 * time.Second)
	if n := d.ts.Sweep(); n != 1 { // not the one in use
		t.Errorf("%d swept", n)
	}
}

func TestDispatcherAllocatesNothing(t *testing.T) {
	d := newBench(t)
	login, ping := d.handle(t, 1, attribute(128, 64)), d.handle(t, 2, nil)
	c := connFrom("[2001:db8::1]:1000")
	c.told = make([]dispatch.Notice, 0, 100)
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		d.clock.Advance(time.Millisecond)
		_ = d.Dispatch(ctx, c, testMessage{op: 1})
		_ = d.Dispatch(ctx, c, testMessage{op: 2})
	})
	if n > 0 || *login < 100 || *login > 900 || *ping < 3 {
		t.Errorf("%v allocations, %d and %d handled", n, *login, *ping)
	}
}

func TestPeers(t *testing.T) {
	unix := &net.UnixAddr{Name: "/run/game.sock", Net: "unix"}
	for _, c := range []struct {
		remote net.Addr
		want   string
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 5, Zone: "eth0"}, "fe80::1"},
		{&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 6}, "192.0.2.1"},
		{net.Addr(textAddr("[::ffff:192.0.2.1]:7")), "192.0.2.1"},
		{(*net.TCPAddr)(nil), "invalid IP"},
		{nil, "invalid IP"},
		{unix, "invalid IP"},
	} {
		if got := dispatch.NewPeer(c.remote).Addr().String(); got != c.want {
			t.Errorf("%v: %s, want %s", c.remote, got, c.want)
		}
	}
	if got := dispatch.PeerOf(netip.MustParseAddr("::ffff:192.0.2.9")).Addr(); got != netip.MustParseAddr("192.0.2.9") {
		t.Error(got)
	}
	d := newBench(t)
	calls := d.handle(t, 2, nil)
	d.send(t, &testConn{peer: dispatch.NewPeer(unix)}, 2, 5)
	if *calls != 3 {
		t.Errorf("%d handled of a peer with a name: the guard knows it by that", *calls)
	}
}

type textAddr string

func (textAddr) Network() string  { return "test" }
func (a textAddr) String() string { return string(a) }

// TestDispatcherKeepsNothingOfAConnection waits until the collector has taken what a flood of connections left.
func TestDispatcherKeepsNothingOfAConnection(t *testing.T) {
	d := newBench(t)
	d.handle(t, 1, &tiers.Attribute{RPS: 1})
	var gone atomic.Int64
	const connections = 1000
	for i := range connections {
		c := connFrom(fmt.Sprintf("192.0.2.1:%d", 1000+i))
		d.send(t, c, 1, 2)
		if len(c.told) != 1 {
			t.Fatalf("told %d times", len(c.told))
		}
		runtime.AddCleanup(c.peer, func(int) { gone.Add(1) }, 0)
	}
	for deadline := time.Now().Add(2 * time.Minute); gone.Load() < connections-1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d peers are gone", gone.Load(), connections)
		}
	}
	if s := d.Stats(); s.Notices != connections {
		t.Errorf("%+v", s)
	}
}

// TestDispatcherContention refuses messages of one connection in many goroutines: one of them tells it.
func TestDispatcherContention(t *testing.T) {
	d := newBench(t)
	d.handle(t, 1, &tiers.Attribute{RPS: 1})
	c := connFrom("192.0.2.1:1000")
	var senders sync.WaitGroup
	var errs atomic.Int64
	for range 4 {
		senders.Go(func() {
			for range 500 {
				if d.Dispatch(t.Context(), c, testMessage{op: 1}) != nil {
					errs.Add(1)
				}
			}
		})
	}
	senders.Wait()
	if s := d.Stats(); len(c.told) != 1 || errs.Load() > 0 || s.Notices != 1 || s.Silent != 1999 || s.Ops[0].Hard != 2000 {
		t.Errorf("told %d times, %d errors, %+v", len(c.told), errs.Load(), s)
	}
}
