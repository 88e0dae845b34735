package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// outage is a store that others share, which can be away.
type outage struct {
	store.Home

	away atomic.Bool
}

func (o *outage) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if o.away.Load() && ask.Mode != store.ModeRefund && ask.Mode != store.ModeReset && ask.States == nil {
		return store.Hold{}, store.ErrUnavailable
	}
	return o.Home.Do(ctx, ask, charges, decisions)
}

func (o *outage) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if o.away.Load() && actual != nil {
		return store.ErrUnavailable
	}
	return o.Home.Settle(ctx, h, actual)
}

// node is an engine with a fleet of its own over a store that others share. It ends with the test.
func node(t *testing.T, s store.Home, set *policy.Set, log *bytes.Buffer) *policy.Engine {
	t.Helper()
	f, err := store.NewFleet(keptOpen{s}, store.FleetOptions{Replicas: store.ReplicasOptions{Disabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return engine(t, set, func(o *policy.EngineOptions) {
		o.Store, o.Clock = f, nil
		if log != nil {
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	})
}

// keptOpen is a store that is not closed by one of those who use it.
type keptOpen struct{ store.Home }

func (keptOpen) Close() error { return nil }

// TestSharedFleetsKeepTheLimits: requests that are held to limits of every consistency, and to those of the process, are one limiter:
// what is granted is within each of the limits, those that are optimistic within their bound, and nothing is lost.
func TestSharedFleetsKeepTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, leased, optimistic, coherent, local = 3, 600, 500, 700, 10_000
		s := memory(t, nil)
		set := &policy.Set{
			Policies: []policy.Policy{
				{Name: "leased", Limits: one(perHour(leased)), Key: policy.MethodText(), Consistency: policy.ConsistencyLeased},
				{Name: "optimistic", Limits: one(perHour(optimistic)), Key: policy.HostText(), Consistency: policy.ConsistencyOptimistic},
				{Name: "coherent", Limits: one(perHour(coherent)), Consistency: policy.ConsistencyCoherent},
				{Name: "local", Limits: one(perHour(local))},
				{
					Name: "use", Limits: one(weir.AtOnce(5)),
					Consistency: policy.ConsistencyCoherent, Hold: time.Hour,
				},
			},
			Rules: []policy.Rule{
				{Name: "all", Limits: uses("leased", "optimistic", "local", "coherent")},
				{Name: "some", Match: policy.Match{Paths: []string{"/use"}}, Limits: uses("use")},
			},
		}
		engines := make([]*policy.Engine, nodes)
		for i := range engines {
			engines[i] = node(t, s, set, nil)
		}
		r := rand.New(rand.NewPCG(5, 5))
		methods, hosts := []string{"GET", "PUT"}, []string{"a", "b"}
		spent, own := map[string]int64{}, [nodes]int64{}
		v := new(policy.Verdict)
		for i := range 3000 {
			request := policy.Request{Method: methods[r.IntN(2)], Host: hosts[r.IntN(2)], Cost: 1 + r.Int64N(2)}
			if r.IntN(10) == 0 {
				request.Path = "/use"
			}
			n := r.IntN(nodes)
			if engines[n].Take(&request, v); v.Allowed {
				spent[request.Method] += request.Cost
				spent[request.Host] += request.Cost
				spent["all"] += request.Cost
				own[n] += request.Cost
			}
			v.Release()
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(10 * time.Second) // blocks go back, and views are told
		o := store.OptimisticOptions{}
		for _, c := range []struct {
			name  string
			bound int64
		}{
			{"GET", leased},
			{"PUT", leased},
			{"a", optimistic + (nodes-1)*o.DriftOf(perHour(optimistic))},
			{"b", optimistic + (nodes-1)*o.DriftOf(perHour(optimistic))},
			{"all", coherent},
		} {
			if spent[c.name] > c.bound || spent[c.name] == 0 {
				t.Errorf("%d permits of %s were granted, at most %d may be", spent[c.name], c.name, c.bound)
			}
		}
		wantStored(t, engines[0], "coherent", "", "", coherent-spent["all"])
		wantStored(t, engines[0], "use", "", "", 5)
		for i, e := range engines {
			wantStored(t, e, "local", "", "", local-own[i])
			for _, p := range e.Report().Policies {
				if p.Unavailable+p.Expired+p.Unsettled+p.Failed != 0 {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}

// TestSharedFleetWithoutItsStore answers by the Fail of each policy; what a fleet knows to answer is not an error of the engine.
func TestSharedFleetWithoutItsStore(t *testing.T) {
	for _, consistency := range []policy.Consistency{policy.ConsistencyCoherent, policy.ConsistencyLeased, policy.ConsistencyOptimistic} {
		for fail, allowed := range map[policy.Fail]int{policy.FailClosed: 0, policy.FailOpen: 40, policy.FailLocal: 30} {
			t.Run(fmt.Sprint(consistency, "/", fail), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &outage{Home: memory(t, nil).Home}
					s.away.Store(true)
					var log bytes.Buffer
					e := node(t, s, &policy.Set{
						Policies: []policy.Policy{
							{Name: "p", Limits: one(perHour(30)), Consistency: consistency, Fail: fail},
							{Name: "local", Limits: one(perHour(100))},
						},
						Rules: []policy.Rule{{Name: "all", Limits: uses("p", "local")}},
					}, &log)
					got := 0
					v := new(policy.Verdict)
					for i := range 40 {
						if i%2 == 0 {
							e.Take(&policy.Request{}, v)
						} else {
							e.Reserve(&policy.Request{}, v)
						}
						if v.Allowed {
							got++
						} else if fail == policy.FailClosed && v.Decision().Reason != weir.ReasonUnavailable {
							t.Errorf("%+v", v.Decision())
						}
						v.Release()
					}
					want := uint64(0)
					if fail == policy.FailClosed {
						want = 40
					}
					if p := e.Report().Policies[0]; got != allowed || p.Unavailable != want || p.Unsettled+p.Expired != 0 {
						t.Errorf("%d granted, want %d: %+v", got, allowed, p)
					}
					wantLeft(t, e, "local", "", int64(100-allowed))
					if strings.Contains(log.String(), "a store failed") {
						t.Errorf("logged:\n%s", log.String())
					}
				})
			})
		}
	}
}

// TestSharedFleetSettlesLater what it could not settle while its store was away.
func TestSharedFleetSettlesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Home: memory(t, nil).Home}
		e := node(t, s, &policy.Set{
			Policies: []policy.Policy{{
				Name: "use", Limits: one(weir.AtOnce(5)), Hold: time.Hour,
				Consistency: policy.ConsistencyCoherent,
			}},
			Rules: []policy.Rule{{Name: "all", Limits: uses("use")}},
		}, nil)
		v := take(e, policy.Request{Cost: 3})
		wantStored(t, e, "use", "", "", 2)
		s.away.Store(true)
		v.Release()
		if p := e.Report().Policies[0]; p.Unsettled != 1 {
			t.Errorf("%+v", p)
		}
		s.away.Store(false)
		time.Sleep(time.Minute)
		wantStored(t, e, "use", "", "", 5)
	})
}
