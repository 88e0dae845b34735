package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// loginEngine has one limit: 2 in a row for each client, and one more each hour.
func loginEngine(o policy.EngineOptions) *policy.Engine {
	e, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name: "login", Key: policy.Client(),
			Limits:  []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}},
			Lockout: &policy.Lockout{Refusals: 3, Within: time.Minute, For: time.Hour},
		}},
		Rules: []policy.Rule{{
			Name: "logins", Match: policy.Match{Paths: []string{"/login"}}, Limits: []policy.Use{{Policy: "login"}},
		}},
	}, o)
	if err != nil {
		panic(err)
	}
	return e
}

// logins asks n times for a client.
func logins(e *policy.Engine, client string, n int) (granted int) {
	var v policy.Verdict
	for range n {
		r := request(client)
		r.Path = "/login"
		if e.Take(&r, &v); v.Allowed {
			granted++
		}
		v.Release()
	}
	return granted
}

func ExampleEngine_Override() {
	e := loginEngine(policy.EngineOptions{})
	defer e.Close()
	fmt.Println("granted:", logins(e, "192.0.2.1", 4))

	err := e.Override(&policy.Override{
		Policy: "login", Key: "192.0.2.1", Unlimited: true, For: time.Hour,
		By: "anna", Reason: "migration of a customer, until noon",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("granted:", logins(e, "192.0.2.1", 4))
	for _, o := range e.Overrides() {
		fmt.Printf("%s of %s by %s: %s\n", o.Key, o.Policy, o.By, o.Reason)
	}
	fmt.Println(e.Restore("login", "192.0.2.1"))
	fmt.Println("granted:", logins(e, "192.0.2.1", 4))
	// Output:
	// granted: 2
	// granted: 4
	// 192.0.2.1 of login by anna: migration of a customer, until noon
	// true
	// granted: 0
}

func ExampleEngine_Key() {
	e := loginEngine(policy.EngineOptions{Clock: manualclock.New(0)})
	defer e.Close()
	logins(e, "192.0.2.1", 4)

	k, err := e.Key(context.Background(), "login", "192.0.2.1")
	if err != nil {
		fmt.Println(err)
		return
	}
	l := k.Limits[0]
	fmt.Printf("%s: %d of %d left, the next one in %v\n", l.Holds, l.Decision.Remaining, l.Decision.Limit, l.Decision.RetryAfter)
	fmt.Println("refusals towards a lockout:", k.RecentRefusals)
	// Output:
	// 1/h, burst 2: 0 of 2 left, the next one in 1h0m0s
	// refusals towards a lockout: 2
}

func ExampleEngine_Top() {
	e := loginEngine(policy.EngineOptions{Clock: manualclock.New(0)})
	defer e.Close()
	logins(e, "192.0.2.1", 1)
	logins(e, "192.0.2.2", 9)
	logins(e, "192.0.2.3", 3)

	top, err := e.Top(context.Background(), "login", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range top {
		fmt.Println(k.Key, k.Limits[0].Decision.Remaining, "left, locked out for", k.LockedFor)
	}
	locked, _ := e.Locked("", 10)
	fmt.Println(len(locked), "locked out:", locked[0].Key, e.Unlock("login", locked[0].Key))
	// Output:
	// 192.0.2.2 0 left, locked out for 1h0m0s
	// 192.0.2.3 0 left, locked out for 0s
	// 192.0.2.1 1 left, locked out for 0s
	// 1 locked out: 192.0.2.2 true
}

func ExampleRefusalLog() {
	withoutTime := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	clock := manualclock.New(0) // a clock that stands, for this example
	refusals, err := policy.NewRefusalLog(policy.RefusalLogOptions{
		Logger: slog.New(slog.NewTextHandler(os.Stdout, withoutTime)),
		Secret: []byte("sixteen bytes or more"),
		Clock:  clock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	e := loginEngine(policy.EngineOptions{OnRefused: refusals.Refused, Clock: clock})
	defer e.Close()
	logins(e, "192.0.2.1", 100) // one line a second for each policy
	// Output:
	// level=INFO msg="request refused" policy=login reason=limited retry_after=1h0m0s limit=1h rule=logins cost=1 remaining=0 max=2 key=3c567a99f3cdddb3 method=GET client=3c567a99f3cdddb3 unlogged=0
}

// slowest remembers the slowest decision, and for how long permits were held.
type slowest struct{ took, held time.Duration }

func (s *slowest) Decided(_ context.Context, _ []*policy.Request, _ *policy.Verdict, took time.Duration) {
	s.took = max(s.took, took)
}

func (s *slowest) Settled(_ *policy.Verdict, held time.Duration) { s.held = max(s.held, held) }

func ExampleObserver() {
	s := new(slowest)
	e := loginEngine(policy.EngineOptions{Observer: s})
	defer e.Close()
	logins(e, "192.0.2.1", 3)
	fmt.Println(s.took > 0, s.held > 0)
	// Output:
	// true true
}

// A function of one policy hears of its decisions, whatever others apply.
func ExamplePolicy() {
	set := &policy.Set{
		Policies: []policy.Policy{{
			Name: "login", Key: policy.Client(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 0)}},
			OnDecided: func(_ *policy.Request, p *policy.Part, v *policy.Verdict) {
				fmt.Printf("%s of %s: allowed %t\n", p.Policy.Name, p.Key, v.Allowed)
			},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "login"}}}},
	}
	e, err := policy.NewEngine(set, policy.EngineOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	logins(e, "192.0.2.1", 2)

	// Output:
	// login of 192.0.2.1: allowed true
	// login of 192.0.2.1: allowed false
}
