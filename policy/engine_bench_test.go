package policy_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// manyRules is a set of n rules, each for a path of its own, and a rule for all; a request is held to limits of the first.
func manyRules(n, limits int) *policy.Set {
	s := &policy.Set{}
	for i := range limits {
		s.Policies = append(s.Policies, policy.Policy{
			Name: fmt.Sprintf("p%d", i), Key: policy.ClientIP(),
			Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1_000_000), 1_000_000_000)}},
		})
	}
	s.Rules = append(s.Rules, policy.Rule{Name: "all", Limits: []policy.Use{{Policy: "p0"}}})
	for i := range n {
		rule := policy.Rule{Name: fmt.Sprintf("rule %d", i), Match: policy.Match{Paths: []string{fmt.Sprintf("/v1/things%d/{id}", i)}}}
		for j := 1; j < limits; j++ {
			rule.Limits = append(rule.Limits, policy.Use{Policy: fmt.Sprintf("p%d", j)})
		}
		s.Rules = append(s.Rules, rule)
	}
	return s
}

// BenchmarkEngine is a decision on a request for which some rules match, without expressions.
func BenchmarkEngine(b *testing.B) {
	for _, limits := range []int{1, 3} {
		for _, rules := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("limits=%d/rules=%d", limits, rules), func(b *testing.B) {
				e, err := policy.NewEngine(manyRules(rules, limits), policy.EngineOptions{})
				if err != nil {
					b.Fatal(err)
				}
				r := policy.Request{
					Protocol: "http", Method: "GET", Host: "api.example.com", Path: "/v1/things7/12", Header: http.Header{},
					Client: netip.MustParseAddr("192.0.2.1"),
				}
				var v policy.Verdict
				b.ReportAllocs()
				for b.Loop() {
					e.Take(&r, &v)
					v.Release()
				}
				if !v.Allowed || len(v.Parts) != limits {
					b.Fatalf("%d limits: %+v", len(v.Parts), v.Decision())
				}
			})
		}
	}
}

// BenchmarkEngineShared is a decision on a request that is held to limits in a store in memory, or in a fleet over it, which leases
// them, beside as many of the process.
func BenchmarkEngineShared(b *testing.B) {
	for _, consistency := range []policy.Consistency{policy.ConsistencyCoherent, policy.ConsistencyLeased} {
		for _, limits := range []int{1, 3} {
			b.Run(fmt.Sprintf("%v/limits=%d", consistency, limits), func(b *testing.B) {
				m, err := store.NewMemory(store.MemoryOptions{})
				if err != nil {
					b.Fatal(err)
				}
				f, err := store.NewFleet(m, store.FleetOptions{Replicas: store.ReplicasOptions{Disabled: true}})
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				set := manyRules(10, 2*limits)
				for i := range limits {
					set.Policies[i].Consistency = consistency
				}
				e, err := policy.NewEngine(set, policy.EngineOptions{Store: f})
				if err != nil {
					b.Fatal(err)
				}
				r := policy.Request{
					Protocol: "http", Method: "GET", Path: "/v1/things7/12", Header: http.Header{}, Client: netip.MustParseAddr("192.0.2.1"),
				}
				var v policy.Verdict
				b.ReportAllocs()
				for b.Loop() {
					e.Take(&r, &v)
					v.Release()
				}
				if !v.Allowed || len(v.Parts) != 2*limits {
					b.Fatalf("%d limits: %+v", len(v.Parts), v.Decision())
				}
			})
		}
	}
}

// BenchmarkEngineAll is a decision on several requests as one step, each with a key of its own, and with one key for all.
func BenchmarkEngineAll(b *testing.B) {
	for _, keys := range []int{8, 1} {
		b.Run(fmt.Sprintf("requests=8/keys=%d", keys), func(b *testing.B) {
			e, err := policy.NewEngine(manyRules(10, 1), policy.EngineOptions{})
			if err != nil {
				b.Fatal(err)
			}
			var requests []*policy.Request
			for i := range 8 {
				requests = append(requests, &policy.Request{
					Protocol: "http", Method: "GET", Path: "/v1/things7/12", Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % keys)}),
				})
			}
			var v policy.Verdict
			b.ReportAllocs()
			for b.Loop() {
				e.TakeAll(b.Context(), requests, &v)
				v.Release()
			}
			if !v.Allowed || len(v.Parts) != 8 {
				b.Fatalf("%d limits: %+v", len(v.Parts), v.Decision())
			}
		})
	}
}

// BenchmarkEngineRefused is a decision that refuses: by the last of the limits, by a lockout of it, and as a cost cannot be told.
func BenchmarkEngineRefused(b *testing.B) {
	for _, limits := range []int{1, 3} {
		for _, by := range []string{"limit", "lockout", "cost"} {
			b.Run(fmt.Sprintf("limits=%d/by=%s", limits, by), func(b *testing.B) {
				set := manyRules(10, limits)
				p := &set.Policies[limits-1]
				p.Limits = []policy.Limit{{Limit: weir.TokenBucket(weir.Per(1, 1000*time.Hour), 1)}}
				switch by {
				case "lockout":
					p.Lockout = &policy.Lockout{Refusals: 1, Within: time.Hour, For: 1000 * time.Hour}
				case "cost":
					p.Cost = failingCost{}
				}
				e, err := policy.NewEngine(set, policy.EngineOptions{})
				if err != nil {
					b.Fatal(err)
				}
				r := policy.Request{
					Protocol: "http", Method: "GET", Path: "/v1/things7/12", Header: http.Header{}, Client: netip.MustParseAddr("192.0.2.1"),
				}
				var v policy.Verdict
				for range 3 {
					e.Take(&r, &v)
				}
				b.ReportAllocs()
				for b.Loop() {
					e.Take(&r, &v)
					v.Release()
				}
				if v.Allowed {
					b.Fatal("allowed")
				}
			})
		}
	}
}

// failingCost cannot be told.
type failingCost struct{}

var errNoCost = errors.New("no cost")

func (failingCost) Int(*policy.Request) (int64, error) { return 0, errNoCost }
func (failingCost) String() string                     { return "failing" }

// allowed, and one that the last limit refuses.
func BenchmarkEngineCold(b *testing.B) {
	for _, refused := range []bool{false, true} {
		b.Run(fmt.Sprintf("refused=%v", refused), func(b *testing.B) {
			set := manyRules(10_000, 3)
			if refused {
				set.Policies[2].Limits[0].Limit = weir.TokenBucket(weir.PerHour(1), 1)
			}
			e, err := policy.NewEngine(set, policy.EngineOptions{})
			if err != nil {
				b.Fatal(err)
			}
			r := policy.Request{Protocol: "http", Method: "GET", Host: "api.example.com", Path: "/v1/things7/12", Header: http.Header{}}
			var v policy.Verdict
			const clients = 1 << 18
			ask := func(i int) {
				i = i * 77777 % clients
				r.Client = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				e.Take(&r, &v)
				v.Release()
			}
			for i := range 2 * clients {
				ask(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(i)
			}
			if v.Allowed == refused || len(v.Parts) != 3 {
				b.Fatalf("%d limits: %+v", len(v.Parts), v.Decision())
			}
		})
	}
}
