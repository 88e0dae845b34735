package policy_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

func ExampleTiers() {
	tiers, err := policy.NewTiers(policy.TiersOptions{Clock: weir.NewManualClock(0)}) // a clock that stands, for this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()

	search, err := tiers.Tier(&policy.Attribute{RPS: 5, Burst: 2.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(search)
	const opSearch = 7
	for range 5 {
		d := search.Check(opSearch, netip.MustParseAddr("192.0.2.1"))
		fmt.Println(d.Allowed, d.Reason, d.Credit())
	}
	// Output:
	// 8/s burst 4
	// true none 3
	// true none 2
	// true none 1
	// true none 0
	// false soft-throttle 0
}

func ExampleDispatcher() {
	type conn struct{ peer *policy.Peer }
	type message struct {
		op   uint64
		text string
	}
	clock := weir.NewManualClock(0) // a clock that stands, for this example
	options := weir.DefaultGuardOptions()
	options.Clock = clock
	guard, err := weir.NewGuard(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer guard.Close()
	tiers, err := policy.NewTiers(policy.TiersOptions{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()

	d, err := policy.NewDispatcher(policy.DispatcherOptions[*conn, message]{
		Guard: guard,
		Tiers: tiers,
		Clock: clock,
		Op:    func(m message) uint64 { return m.op },
		Peer:  func(c *conn) *policy.Peer { return c.peer },
		Notify: func(_ context.Context, _ *conn, n policy.Notice) error {
			fmt.Println("refused:", n.Decision.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	const opLogin = 1
	err = d.Handle(opLogin, &policy.Attribute{RPS: 1, Burst: 2}, func(_ context.Context, _ *conn, m message) error {
		fmt.Println("welcome", m.text)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	c := &conn{policy.PeerOf(netip.MustParseAddr("192.0.2.1"))} // of a net.Conn: policy.NewPeer(c.RemoteAddr())
	for range 4 {
		if err := d.Dispatch(context.Background(), c, message{opLogin, "ada"}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(d.Stats().Ops[0].Soft, "dropped")
	// Output:
	// welcome ada
	// welcome ada
	// refused: soft-throttle
	// 2 dropped
}

// A rule for all requests and one for a path; a health check is free.
func ExampleEngine() {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{
			{Name: "client", Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerSecond(10)}}}, Key: policy.ClientIP()},
			{Name: "login", Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerMinute(2)}}}, Key: policy.ClientIP()},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: []policy.Use{{Policy: "client"}}},
			{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: []policy.Use{{Policy: "login"}}},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
		},
	}, policy.EngineOptions{Clock: weir.NewManualClock(0)})
	if err != nil {
		fmt.Println(err)
		return
	}
	var verdict policy.Verdict
	for _, path := range []string{"/login", "/login", "/login", "/healthz"} {
		engine.Take(&policy.Request{Path: path, Client: netip.MustParseAddr("192.0.2.1")}, &verdict)
		d := verdict.Decision()
		fmt.Println(path, verdict.Allowed, d.Policy, d.RetryAfter)
		verdict.Release()
	}
	// Output:
	// /login true login 0s
	// /login true login 0s
	// /login false login 30s
	// /healthz true  0s
}

// What would happen to a request, and why, without taking anything.
func ExampleEngine_Explain() {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{
			{Name: "writes", Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerMinute(3)}}}, Key: policy.PathValueText("user")},
		},
		Rules: []policy.Rule{
			{Name: "write", Match: policy.Match{Methods: []string{"PUT", "POST"}, Paths: []string{"/users/{user}"}}, Limits: []policy.Use{{Policy: "writes"}}},
			{Name: "internal", Match: policy.Match{Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Exempt: true},
		},
	}, policy.EngineOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	x := engine.Explain(&policy.Request{Method: "PUT", Path: "/users/ann", Client: netip.MustParseAddr("192.0.2.1"), Cost: 2})
	for _, rule := range x.Rules {
		fmt.Printf("%s: %t %s\n", rule.Name, rule.Matched, cmp.Or(rule.Condition, "as all conditions hold"))
	}
	for _, l := range x.Limits {
		fmt.Printf("%s by %s: %d left, then %d\n", l.Policy, l.Key, l.Before, l.After)
	}
	// Output:
	// write: true as all conditions hold
	// internal: false client: 192.0.2.1 is in none of 10.0.0.0/8
	// writes by ann: 3 left, then 1
}

// Servers of a fleet share limits through a store: here one in memory, elsewhere Redis.
func ExampleNamed() {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	var fleets [2]*store.Fleet
	var servers [2]*policy.Engine
	for i := range servers {
		fleets[i], err = store.NewFleet(memory, store.FleetOptions{Replicas: store.ReplicasOptions{Disabled: true}})
		if err != nil {
			panic(err)
		}
		servers[i], err = policy.NewEngine(&policy.Set{
			Policies: []policy.Policy{{
				Name: "mails", Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerHour(3)}}},
				Consistency: policy.ConsistencyCoherent, Fail: policy.FailLocal,
			}},
		}, policy.EngineOptions{Store: fleets[i]})
		if err != nil {
			panic(err)
		}
	}
	var v policy.Verdict
	for i := range 4 {
		servers[i%2].Take(&policy.Request{
			Named: &policy.Named{Policy: []byte("mails"), Key: []byte("alice"), Cost: 1}, Context: context.Background(),
		}, &v)
		fmt.Println(v.Allowed, v.Decision().Remaining)
		v.Release()
	}
	for i := range servers {
		servers[i].Close()
		fleets[i].Close()
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}
