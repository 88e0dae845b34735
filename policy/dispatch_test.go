package policy_test

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
	"github.com/weirhq/weir/policy"
)

// testConn is a connection that keeps what it is told.
type testConn struct {
	peer *policy.Peer

	mu   sync.Mutex
	told []policy.Notice
}

func (c *testConn) notify(_ context.Context, _ *testConn, n policy.Notice) error {
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
	return &testConn{peer: policy.NewPeer(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(endpoint)))}
}

type testMessage struct {
	op   uint64
	text string
}

type dispatcher = policy.Dispatcher[*testConn, testMessage]

// dispatch is a dispatcher in a time of its own.
type dispatch struct {
	*dispatcher

	clock *weir.ManualClock
	tiers *policy.Tiers
	guard *weir.Guard
}

func newDispatch(t *testing.T, changes ...func(*policy.DispatcherOptions[*testConn, testMessage])) dispatch {
	t.Helper()
	tiers, clock := newTiers(t, policy.TiersOptions{})
	o := weir.DefaultGuardOptions()
	o.Clock, o.CapacityTokens, o.RefillTokensPerSecond = clock, 3, 1
	guard, err := weir.NewGuard(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guard.Close() })
	options := policy.DispatcherOptions[*testConn, testMessage]{
		Guard: guard, Tiers: tiers, Clock: clock,
		Op:   func(m testMessage) uint64 { return m.op },
		Peer: func(c *testConn) *policy.Peer { return c.peer },
		Notify: func(ctx context.Context, c *testConn, n policy.Notice) error {
			return c.notify(ctx, c, n)
		},
	}
	for _, change := range changes {
		change(&options)
	}
	d, err := policy.NewDispatcher(options)
	if err != nil {
		t.Fatal(err)
	}
	return dispatch{d, clock, tiers, guard}
}

// counting is a handler that counts its calls.
func counting(n *int) policy.Handler[*testConn, testMessage] {
	return func(context.Context, *testConn, testMessage) error { *n++; return nil }
}

func (d dispatch) handle(t *testing.T, op uint64, a *policy.Attribute) (calls *int) {
	t.Helper()
	calls = new(int)
	if err := d.Handle(op, a, counting(calls)); err != nil {
		t.Fatal(err)
	}
	return calls
}

func (d dispatch) send(t *testing.T, c *testConn, op uint64, times int) {
	t.Helper()
	for range times {
		if err := d.Dispatch(t.Context(), c, testMessage{op: op}); err != nil {
			t.Error(err)
		}
	}
}

func TestDispatcherAttributeChoosesTheLimit(t *testing.T) {
	d := newDispatch(t)
	login, ping, other := d.handle(t, 1, attribute(1, 2)), d.handle(t, 2, nil), d.handle(t, 3, nil)
	c := connFrom("192.0.2.1:1000")
	d.send(t, c, 1, 10)
	d.send(t, c, 2, 2)
	d.send(t, c, 3, 10)
	if *login != 2 || *ping != 2 || *other != 1 {
		t.Errorf("%d, %d, %d handled: want 2 of the tier, and 3 of the guard together", *login, *ping, *other)
	}
	if d := d.tiers.Check(attribute(1, 2), 1, alice); d.Allowed {
		t.Error("the subject was not opcode 1 and the address")
	}
	if n := d.tiers.Report().Checks; n != 11 {
		t.Errorf("%d checks of the tiers", n)
	}
}

func TestDispatcherPortRotationDoesNotHelp(t *testing.T) {
	d := newDispatch(t)
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
	d := newDispatch(t)
	d.handle(t, 1, attribute(1, 1))
	c, other := connFrom("192.0.2.1:1000"), connFrom("192.0.2.1:1001")
	d.send(t, c, 1, 2) // the second is refused, and told
	want := policy.Notice{Op: 1, Decision: d.tiersDecision(weir.ReasonSoftThrottle, time.Second)}
	if !slices.Equal(c.told, []policy.Notice{want}) {
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
	wantOps := []policy.OpStats{{Op: 1, Passed: 1, Soft: s.Ops[0].Soft, Hard: s.Ops[0].Hard}}
	if !slices.Equal(s.Ops, wantOps) || s.Ops[0].Soft+s.Ops[0].Hard != 65 || s.Ops[0].Hard < 20 || s.Notices != 6 || s.Silent != 59 {
		t.Errorf("%+v", s)
	}
}

// tiersDecision is a refusal of the tier 1/s burst 1 that is empty.
func (d dispatch) tiersDecision(r weir.Reason, retry time.Duration) weir.Decision {
	return weir.Decision{Reason: r, Limit: 1, RetryAfter: retry, ResetAfter: retry, Policy: "1/s burst 1"}
}

func TestDispatcherCooldownIsAnOption(t *testing.T) {
	d := newDispatch(t, func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Cooldown = time.Minute })
	d.handle(t, 1, &policy.Attribute{RPS: 1})
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
	d := newDispatch(t)
	d.handle(t, 1, &policy.Attribute{RPS: 1})
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
	d := newDispatch(t)
	c := connFrom("192.0.2.1:1000")
	for i := range 3 {
		err := d.Dispatch(t.Context(), c, testMessage{op: 77})
		if !errors.Is(err, policy.ErrUnknownOp) || err.Error() != "weir: unknown opcode 77" {
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
	d := newDispatch(t, func(o *policy.DispatcherOptions[*testConn, testMessage]) {
		o.Notify = func(context.Context, *testConn, policy.Notice) error { return broken }
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
	if err := d.Dispatch(t.Context(), &testConn{}, testMessage{op: 1}); !errors.Is(err, policy.ErrNoPeer) {
		t.Error(err)
	}
	if err := d.Dispatch(t.Context(), &testConn{peer: new(policy.Peer)}, testMessage{op: 2}); !errors.Is(err, weir.ErrNoEndpoint) {
		t.Error(err)
	}
	if err := d.Dispatch(t.Context(), &testConn{peer: new(policy.Peer)}, testMessage{op: 1}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestDispatcherRegistration(t *testing.T) {
	d := newDispatch(t)
	calls := d.handle(t, 1, nil)
	noTiers := newDispatch(t, func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Tiers = nil })
	nan := &policy.Attribute{RPS: math.NaN(), Burst: 1}
	_, err := d.Limit(1, nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{err, "weir: opcode 1 is registered twice: must be once"},
		{d.Handle(1, nil, counting(calls)), "weir: opcode 1 is registered twice: must be once"},
		{d.Handle(2, nil, nil), "weir: handler of opcode 2 is nil: must be given"},
		{d.Handle(3, nan, counting(calls)), "weir: opcode 3: weir: Attribute.RPS is NaN: must be a number"},
		{
			noTiers.Handle(4, attribute(1, 1), counting(calls)),
			"weir: opcode 4 has an attribute, but DispatcherOptions.Tiers is nil: must be given",
		},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	for name, change := range map[string]func(*policy.DispatcherOptions[*testConn, testMessage]){
		"Guard is nil":     func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Guard = nil },
		"Op is nil":        func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Op = nil },
		"Peer is nil":      func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Peer = nil },
		"Cooldown is -1ns": func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Cooldown = -1 },
		"Cooldown is 1h1s": func(o *policy.DispatcherOptions[*testConn, testMessage]) { o.Cooldown = time.Hour + time.Second },
	} {
		o := policy.DispatcherOptions[*testConn, testMessage]{
			Guard: d.guard, Op: func(testMessage) uint64 { return 0 }, Peer: func(*testConn) *policy.Peer { return nil },
		}
		change(&o)
		name = strings.ReplaceAll(name, "1h1s", "1h0m1s")
		if _, err := policy.NewDispatcher(o); err == nil || !strings.HasPrefix(err.Error(), "weir: DispatcherOptions."+name+": must be") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDispatcherMiddleware(t *testing.T) {
	d := newDispatch(t)
	var order []string
	note := func(name string) policy.Middleware[*testConn, testMessage] {
		return func(next policy.Handler[*testConn, testMessage]) policy.Handler[*testConn, testMessage] {
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
	if err := d.Dispatch(t.Context(), c, testMessage{op: 9}); !errors.Is(err, policy.ErrUnknownOp) {
		t.Error(err)
	}
}

func TestDispatcherPanicLeavesNothingHeld(t *testing.T) {
	d := newDispatch(t)
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
	if n := d.tiers.Sweep(); n != 1 { // which takes nobody in use
		t.Errorf("%d swept", n)
	}
}

func TestDispatcherAllocatesNothing(t *testing.T) {
	d := newDispatch(t)
	login, ping := d.handle(t, 1, attribute(128, 64)), d.handle(t, 2, nil)
	c := connFrom("[2001:db8::1]:1000")
	c.told = make([]policy.Notice, 0, 100)
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
		if got := policy.NewPeer(c.remote).Addr().String(); got != c.want {
			t.Errorf("%v: %s, want %s", c.remote, got, c.want)
		}
	}
	if got := policy.PeerOf(netip.MustParseAddr("::ffff:192.0.2.9")).Addr(); got != netip.MustParseAddr("192.0.2.9") {
		t.Error(got)
	}
	d := newDispatch(t)
	calls := d.handle(t, 2, nil)
	d.send(t, &testConn{peer: policy.NewPeer(unix)}, 2, 5)
	if *calls != 3 {
		t.Errorf("%d handled of a peer with a name: the guard knows it by that", *calls)
	}
}

type textAddr string

func (textAddr) Network() string  { return "test" }
func (a textAddr) String() string { return string(a) }

// TestDispatcherKeepsNothingOfAConnection waits until the collector has taken what a flood of connections left.
func TestDispatcherKeepsNothingOfAConnection(t *testing.T) {
	d := newDispatch(t)
	d.handle(t, 1, &policy.Attribute{RPS: 1})
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
	d := newDispatch(t)
	d.handle(t, 1, &policy.Attribute{RPS: 1})
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
