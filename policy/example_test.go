package policy_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

func ExampleEngine() {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{
			{Name: "client", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10), 0)}}, Key: policy.Client()},
			{Name: "login", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(2), 0)}}, Key: policy.Client()},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: []policy.Use{{Policy: "client"}}},
			{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: []policy.Use{{Policy: "login"}}},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
		},
	}, policy.EngineOptions{Clock: manualclock.New(0)})
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
			{Name: "writes", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(3), 0)}}, Key: policy.PathValueText("user")},
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
	// internal: false client is 192.0.2.1, rule wants 10.0.0.0/8
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
				Name: "mails", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(3), 0)}},
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
