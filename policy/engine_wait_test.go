package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// overdue is a context whose deadline has passed.
func overdue(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	return ctx
}

// prompt is an owner that never lets a call wait.
type prompt struct{ *owner }

func (p prompt) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	ask.Wait = 0
	return p.owner.Do(ctx, ask, charges, decisions)
}

// TestWaitTriesBeforeItLooksAtTheTime: a machine that is so busy that the time of a caller is up before anything was tried makes
// no difference where permits are there. Of a store this needs a request that may be asked about for longer.
func TestWaitTriesBeforeItLooksAtTheTime(t *testing.T) {
	queue := func(p *policy.Policy) { p.QueueLimit = 9 }
	durable := func(p *policy.Policy) { p.Durability = policy.DurabilityCluster }
	for name, change := range map[string]func(*policy.Policy){
		"no queue": func(*policy.Policy) {}, "queue": queue, "shared": coherent, "durable": durable,
		"durable queue": func(p *policy.Policy) { queue(p); durable(p) },
		"two limits": func(p *policy.Policy) {
			queue(p)
			twoLimits("a", "b", perHour(2), perHour(2))(p)
		},
		"parent in a store": func(p *policy.Policy) { queue(p); p.Parent = "stored" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := login(change)
				set.Policies = append(set.Policies, shared(policy.Policy{Name: "stored", Limits: one(perHour(9))})...)
				o := newOwner(t, nil)
				e := ownedBy(t, prompt{o}, o.watched, nil, set)
				v := new(policy.Verdict)
				for i, wait := range []func(context.Context, *policy.Request, *policy.Verdict) error{e.Wait, e.WaitReserve} {
					r := request(ann)
					r.Context = t.Context()
					if err := wait(overdue(t), &r, v); err != nil || !v.Allowed {
						t.Errorf("%d: %+v, %v", i, v.Decision(), err)
					}
					v.Release()
				}
				r := request(ann)
				r.Context = t.Context()
				err := verdictOf(e.Wait(overdue(t), &r, v), v)
				if d := v.Decision(); err != nil || v.Allowed || d.Reason != weir.ReasonDeadline && d.Reason != weir.ReasonLimited {
					t.Errorf("without permits: %+v, %v", d, err)
				}
				v.Release()
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				r = request(ben)
				r.Context = t.Context()
				if err := verdictOf(e.Wait(gone, &r, v), v); !errors.Is(err, context.Canceled) || v.Allowed {
					t.Errorf("of a caller that has gone: %+v, %v", v.Decision(), err)
				}
				wantTakes(t, e, ben, 3, 2)
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowly is a store that takes its time.
type slowly struct {
	*watched

	takes time.Duration
}

func (s *slowly) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode == store.ModeTake && ask.Hold == 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return store.Hold{}, store.ErrUnavailable
		}
	}
	return s.watched.Do(ctx, ask, charges, decisions)
}

// TestWaitAsksStoresForLongerThanItWaits: the time of the waiting is not that of the answer of a store. A client that goes ends
// both.
func TestWaitAsksStoresForLongerThanItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, login(coherent), func(o *policy.EngineOptions) {
			o.Clock, o.Store = nil, &slowly{memory(t, nil), 20 * time.Millisecond}
		})
		ask := func(own bool, ends func(context.Context) (context.Context, context.CancelFunc)) (*policy.Verdict, time.Duration) {
			ctx, cancel := ends(t.Context())
			defer cancel()
			r, v, began := request(ann), new(policy.Verdict), time.Now()
			if own {
				r.Context = t.Context()
			}
			if err := verdictOf(e.Wait(ctx, &r, v), v); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			v.Release()
			return v, time.Since(began)
		}
		soon := func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Millisecond)
		}
		if v, took := ask(true, soon); !v.Allowed || took != 20*time.Millisecond {
			t.Errorf("the request has a context: %+v after %v", v.Decision(), took)
		}
		if v, took := ask(false, soon); v.Allowed || took != 5*time.Millisecond || v.Decision().Reason != weir.ReasonUnavailable {
			t.Errorf("it has none: %+v after %v", v.Decision(), took)
		}
		leave := func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(5*time.Millisecond, cancel)
			return ctx, cancel
		}
		if v, took := ask(true, leave); v.Allowed || took != 5*time.Millisecond {
			t.Errorf("the caller has gone: %+v after %v", v.Decision(), took)
		}
	})
}

// TestWaitSaysWhatWasRefused: the error of a request that no limit has decided on has its own cost, and why it could not be told.
func TestWaitSaysWhatWasRefused(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(9))}, {Name: "q", Key: failing{}, Limits: one(perHour(9))}},
		Rules: []policy.Rule{
			{Name: "denied", Match: policy.Match{Paths: []string{"/denied"}}, Deny: true},
			{Name: "fails", Match: policy.Match{Paths: []string{"/fails"}}, Limits: uses("q")},
			{Name: "costs", Match: policy.Match{Paths: []string{"/costs"}}, Limits: uses("p")},
		},
	})
	named := func(name string, cost int64, l weir.Limit) policy.Request {
		return policy.Request{Named: &policy.Named{Policy: []byte(name), Cost: cost, Limit: l}}
	}
	for name, c := range map[string]struct {
		r       policy.Request
		permits int64
		matches error
		says    string
	}{
		"denied":         {policy.Request{Path: "/denied", Cost: 5}, 5, weir.ErrRefused, "denied"},
		"unknown policy": {named("none", 7, weir.Limit{}), 7, weir.ErrRefused, `policy is "none": must be the name of a policy`},
		"too much":       {named("p", 1e15+1, weir.Limit{}), 1e15 + 1, weir.ErrRefused, "is 1000000000000001: must be from 0 to 10^15"},
		"a limit":        {named("p", 1, perHour(3)), 1, weir.ErrRefused, "limit that a request brings is "},
		"a key":          {policy.Request{Path: "/fails"}, 1, errCannot, errCannot.Error()},
		"negative":       {policy.Request{Path: "/costs", Cost: -1}, -1, weir.ErrRefused, "the cost is -1: must be from 0 to 10^15"},
		"more than all":  {policy.Request{Path: "/costs", Cost: 1e16}, 1e16, weir.ErrRefused, "the cost is 10000000000000000: must be"},
	} {
		var v policy.Verdict
		err := e.Wait(t.Context(), &c.r, &v)
		refused, ok := errors.AsType[*weir.RefusedError](err)
		if !ok || refused.Permits != c.permits || !errors.Is(err, c.matches) || errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaitWithoutAQueueSaysSoAsLimitersDo: the error has the reason and the text of a limiter that was asked alone, and the
// verdict says that the limit is exceeded, also where another policy of the request has a queue.
func TestWaitWithoutAQueueSaysSoAsLimitersDo(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1))}, {Name: "q", Limits: one(perHour(9)), QueueLimit: 9}},
		Rules: []policy.Rule{
			{Name: "alone", Match: policy.Match{Paths: []string{"/alone"}}, Limits: uses("p")},
			{Name: "both", Match: policy.Match{Paths: []string{"/both"}}, Limits: uses("p", "q")},
		},
	})
	var v policy.Verdict
	e.Take(&policy.Request{Path: "/alone"}, &v)
	for _, path := range []string{"/alone", "/both"} {
		err := e.Wait(t.Context(), &policy.Request{Path: path}, &v)
		refused, ok := errors.AsType[*weir.RefusedError](err)
		if !ok || refused.Decision.Reason != weir.ReasonQueueFull || !errors.Is(err, weir.ErrNoQueue) ||
			!strings.HasPrefix(err.Error(), `weir: "p" refused 1 permit: queue-full, retry after`) {
			t.Errorf("%s: %v", path, err)
		}
		if d := v.Decision(); d.Reason != weir.ReasonLimited || d.Policy != "p" {
			t.Errorf("%s: the verdict is %+v", path, d)
		}
	}
}

// TestRequestsThatWaitAreNotAllowedYet: a request is counted when it is decided, and not while it waits in a queue or for a store.
func TestRequestsThatWaitAreNotAllowedYet(t *testing.T) {
	queue := func(p *policy.Policy) { p.QueueLimit, p.Limits = 9, one(weir.AtOnce(1)) }
	stored := func(p *policy.Policy) { coherent(p); p.Limits = one(perHour(1)) }
	for name, change := range map[string]func(*policy.Policy){"queue": queue, "store": stored} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := engine(t, login(change), func(o *policy.EngineOptions) {
					o.Clock, o.Store = nil, &slowly{memory(t, nil), 50 * time.Millisecond}
				})
				counted := func(requests, refused uint64) {
					t.Helper()
					if r := e.Report(); r.Requests != requests || r.Refused != refused || r.Rules[0].Matched != requests {
						t.Errorf("%d requests, %d of them refused, %d matched: must be %d and %d",
							r.Requests, r.Refused, r.Rules[0].Matched, requests, refused)
					}
				}
				wait := func(v *policy.Verdict) {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					r := request(ann)
					r.Context = t.Context()
					if err := verdictOf(e.Wait(ctx, &r, v), v); err != nil {
						t.Error(err)
					}
				}
				var first, second policy.Verdict
				wait(&first)
				counted(1, 0)
				done := make(chan struct{})
				go func() {
					defer close(done)
					wait(&second)
				}()
				synctest.Wait()
				counted(1, 0)
				<-done
				counted(2, 1)
				first.Release()
			})
		})
	}
}
