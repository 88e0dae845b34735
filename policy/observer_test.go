package policy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
)

// watcher notes what it is told.
type watcher struct {
	mu      sync.Mutex
	decided []decided
	settled []time.Duration
	refused []refused
	id      uint64
}

type decided struct {
	requests int
	allowed  bool
	id       uint64
	took     time.Duration
}

type refused struct {
	requests int
	reason   weir.Reason
	binding  int
	key      string
}

func (w *watcher) Decided(_ context.Context, requests []*policy.Request, v *policy.Verdict, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided = append(w.decided, decided{len(requests), v.Allowed, v.RefusalID, took})
}

func (w *watcher) Settled(_ *policy.Verdict, held time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = append(w.settled, held)
}

func (w *watcher) Refused(requests []*policy.Request, v *policy.Verdict) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := refused{len(requests), v.Decision().Reason, v.Binding, ""}
	if v.Binding >= 0 {
		r.key = string(v.Parts[v.Binding].Key)
	}
	w.refused = append(w.refused, r)
	w.id++
	return w.id
}

func (w *watcher) watch(o *policy.EngineOptions) { o.Observer, o.OnRefused = w, w.Refused }

// watchedCase is a way to a verdict, and what is told of it.
type watchedCase struct {
	set      *policy.Set
	options  func(*policy.EngineOptions)
	ask      func(e *policy.Engine, v *policy.Verdict)
	allowed  bool
	refused  []refused
	requests int
	untold   bool // it is a probe, or there is no such policy
}

// untold is a text that cannot be told.
type untold struct{}

func (untold) AppendTo(b []byte, _ *policy.Request) ([]byte, error) { return b, errors.New("no idea") }
func (untold) String() string                                       { return "untold" }

func fullShedder(t *testing.T) *overload.Shedder {
	t.Helper()
	load := 2.0
	s, err := overload.NewShedder(overload.ShedderOptions{
		Sources: []overload.Pressure{fixedPressure{&load}}, Rise: -1, Fall: -1, Random: func() float64 { return 0.1 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// watchedCases are all ways to a verdict.
func watchedCases(t *testing.T) map[string]watchedCase {
	t.Helper()
	bg := context.Background()
	gone, cancel := context.WithCancel(bg)
	cancel()
	ask := func(e *policy.Engine, v *policy.Verdict) {
		r := request(ann)
		e.Take(&r, v)
	}
	thrice := func(e *policy.Engine, v *policy.Verdict) {
		for range 3 {
			ask(e, v)
			v.Release()
		}
	}
	limited := []refused{{1, weir.ReasonLimited, 0, ann}}
	wait := func(ctx context.Context, n int) func(*policy.Engine, *policy.Verdict) {
		return func(e *policy.Engine, v *policy.Verdict) {
			for range n {
				r := request(ann)
				_ = e.Wait(ctx, &r, v)
			}
		}
	}
	queue := func(p *policy.Policy) { p.QueueLimit, p.MaxWait = 1, time.Millisecond }
	many := make([]*policy.Request, keyset.MostCharges+1)
	for i := range many {
		r := request(ann)
		many[i] = &r
	}
	coherent := &policy.Set{Policies: shared(login().Policies...), Rules: login().Rules}
	stored := func(o *policy.EngineOptions) { o.Store = memory(t, o.Clock) }
	failing := func(o *policy.EngineOptions) {
		s := memory(t, o.Clock)
		s.fail = func() error { return errors.New("gone") }
		o.Store = s
	}
	locking := login(func(p *policy.Policy) { p.Lockout = &policy.Lockout{Refusals: 1, Within: time.Minute, For: time.Hour} })
	return map[string]watchedCase{
		"granted": {ask: ask, allowed: true, requests: 1},
		"limited": {ask: thrice, refused: limited, requests: 1},
		"locked out": {set: locking, ask: func(e *policy.Engine, v *policy.Verdict) {
			thrice(e, v)
			ask(e, v)
		}, refused: []refused{{1, weir.ReasonHardLockout, 0, ann}, {1, weir.ReasonHardLockout, 0, ann}}, requests: 1},
		"shed": {
			options: func(o *policy.EngineOptions) { o.Shedder = fullShedder(t) }, ask: ask,
			refused: []refused{{1, weir.ReasonOverloaded, -1, ""}}, requests: 1,
		},
		"unlimited": {set: &policy.Set{}, ask: ask, allowed: true, requests: 1},
		"exempt":    {set: &policy.Set{Rules: []policy.Rule{{Name: "x", Exempt: true}}}, ask: ask, allowed: true, requests: 1},
		"no key": {
			set: login(func(p *policy.Policy) { p.Key = untold{} }), ask: ask,
			refused: []refused{{1, weir.ReasonUnavailable, -1, ""}}, requests: 1,
		},
		"brought": {
			set: login(func(p *policy.Policy) { p.LimitBy = fixed{weir.FixedWindow(weir.Rate{})} }), ask: ask,
			refused: []refused{{1, weir.ReasonInvalid, -1, ""}}, requests: 1,
		},
		"reserved": {ask: func(e *policy.Engine, v *policy.Verdict) {
			r := request(ann)
			e.Reserve(&r, v)
		}, allowed: true, requests: 1},
		"probe": {ask: func(e *policy.Engine, v *policy.Verdict) {
			r := request(ann)
			r.Cost = 9
			e.Peek(&r, v)
			e.PeekAll(bg, []*policy.Request{&r}, v)
			peekKey(bg, e, "login", ann, 9, v)
			e.Explain(&r)
		}, untold: true},
		"waited":   {ask: wait(bg, 1), allowed: true, requests: 1},
		"no queue": {ask: wait(bg, 3), refused: limited, requests: 1},
		"too late": {set: login(queue), ask: wait(bg, 3), refused: []refused{{1, weir.ReasonDeadline, 0, ann}}, requests: 1},
		"gone":     {set: login(queue), ask: wait(gone, 1), requests: 1},
		"all": {ask: func(e *policy.Engine, v *policy.Verdict) {
			a, b := request(ann), request(ben)
			b.Cost = 3
			e.TakeAll(bg, []*policy.Request{&a, &b}, v)
		}, refused: []refused{{2, weir.ReasonNever, 1, ben}}, requests: 2},
		"too many": {
			ask:     func(e *policy.Engine, v *policy.Verdict) { e.TakeAll(bg, many, v) },
			refused: []refused{{len(many), weir.ReasonInvalid, -1, ""}}, requests: len(many),
		},
		"key": {
			ask:     func(e *policy.Engine, v *policy.Verdict) { takeKey(bg, e, "login", "k", 3, v) },
			refused: []refused{{1, weir.ReasonNever, 0, "k"}}, requests: 1,
		},
		"key granted":  {ask: func(e *policy.Engine, v *policy.Verdict) { reserveKey(bg, e, "login", "k", 2, v) }, allowed: true, requests: 1},
		"key misused":  {ask: func(e *policy.Engine, v *policy.Verdict) { takeKey(bg, e, "login", "k", -1, v) }, refused: []refused{{1, weir.ReasonInvalid, -1, ""}}, requests: 1},
		"no policy":    {ask: func(e *policy.Engine, v *policy.Verdict) { takeKey(bg, e, "other", "k", 1, v) }, refused: []refused{{1, weir.ReasonInvalid, -1, ""}}, requests: 1},
		"shared":       {set: coherent, options: stored, ask: ask, allowed: true, requests: 1},
		"shared short": {set: coherent, options: stored, ask: thrice, refused: limited, requests: 1},
		"shared gone": {set: coherent, options: failing, ask: func(e *policy.Engine, v *policy.Verdict) {
			takeKey(gone, e, "login", "k", 1, v)
		}, requests: 1},
		"store failed": {set: coherent, options: failing, ask: ask, refused: []refused{{1, weir.ReasonUnavailable, 0, ann}}, requests: 1},
		"debit": {ask: func(e *policy.Engine, v *policy.Verdict) {
			r := request(ann)
			r.Cost = 9
			e.DebitAll(bg, []*policy.Request{&r}, v)
		}, allowed: true, requests: 1},
		"debit failed": {set: coherent, options: failing, ask: func(e *policy.Engine, v *policy.Verdict) {
			r := request(ann)
			e.DebitAll(bg, []*policy.Request{&r}, v)
		}, refused: []refused{{1, weir.ReasonUnavailable, 0, ann}}, requests: 1},
		"debit too many": {
			ask:     func(e *policy.Engine, v *policy.Verdict) { e.DebitAll(bg, many, v) },
			refused: []refused{{len(many), weir.ReasonInvalid, -1, ""}}, requests: len(many),
		},
		"closed": {ask: func(e *policy.Engine, v *policy.Verdict) {
			_ = e.Close()
			ask(e, v)
		}, refused: []refused{{1, weir.ReasonClosed, 0, ann}}, requests: 1},
	}
}

// TestObserverAndOnRefusedAreToldOfAllVerdicts, once each, and OnRefused of those alone that refuse a caller who is still there.
func TestObserverAndOnRefusedAreToldOfAllVerdicts(t *testing.T) {
	for name, c := range watchedCases(t) {
		t.Run(name, func(t *testing.T) {
			w, set := new(watcher), c.set
			if set == nil {
				set = login()
			}
			options := []func(*policy.EngineOptions){w.watch}
			if c.options != nil {
				options = append(options, c.options)
			}
			e := engine(t, set, options...)
			v := &policy.Verdict{RefusalID: 7}
			c.ask(e, v)
			if len(w.refused) != len(c.refused) {
				t.Fatalf("OnRefused was told %+v, want %+v", w.refused, c.refused)
			}
			for i := range c.refused {
				if w.refused[i] != c.refused[i] {
					t.Errorf("OnRefused was told %+v, want %+v", w.refused[i], c.refused[i])
				}
			}
			if c.untold {
				if len(w.decided) != 0 {
					t.Errorf("the observer was told of %+v", w.decided)
				}
				return
			}
			report := e.Report()
			asked := int(report.Requests)
			if c.requests > 1 {
				asked = 1
			}
			if len(w.decided) != asked {
				t.Fatalf("the observer was told of %d verdicts, want %d", len(w.decided), asked)
			}
			last := w.decided[len(w.decided)-1]
			if last.requests != c.requests || last.allowed != c.allowed || last.allowed != v.Allowed || last.took <= 0 {
				t.Errorf("the observer was told %+v", last)
			}
			if want := uint64(len(c.refused)); v.RefusalID != want || last.id != want {
				t.Errorf("the ID is %d, the observer had %d, want %d", v.RefusalID, last.id, want)
			}
			if refusals := int(report.Refused); c.requests <= 1 && refusals != len(c.refused) {
				t.Errorf("the report has %d refusals, OnRefused was told of %d", refusals, len(c.refused))
			}
		})
	}
}

// TestSettledOnce by whatever ends the verdict first.
func TestSettledOnce(t *testing.T) {
	ends := map[string]func(*policy.Verdict){
		"release": (*policy.Verdict).Release, "cancel": (*policy.Verdict).Cancel,
		"commit": func(v *policy.Verdict) { v.Commit(func(*policy.Part) int64 { return -1 }) },
	}
	for name, end := range ends {
		for _, set := range []*policy.Set{login(), {}} {
			synctest.Test(t, func(t *testing.T) {
				w := new(watcher)
				e := engine(t, set, w.watch)
				var v policy.Verdict
				r := request(ann)
				e.Reserve(&r, &v)
				time.Sleep(time.Second)
				end(&v)
				for _, again := range ends {
					again(&v)
				}
				if len(w.settled) != 1 || w.settled[0] != time.Second {
					t.Errorf("%s: %v", name, w.settled)
				}
				r.Cost = 9
				if e.Take(&r, &v); !v.Allowed {
					v.Release() // nothing ends that was not allowed
					if len(w.settled) != 1 {
						t.Errorf("%s: %v", name, w.settled)
					}
				}
			})
		}
	}
	w := new(watcher)
	e := engine(t, login(), w.watch)
	r := request(ann)
	var v policy.Verdict
	e.DebitAll(context.Background(), []*policy.Request{&r}, &v)
	v.Release()
	if len(w.settled) != 1 || w.settled[0] != 0 {
		t.Errorf("a debit: %v", w.settled)
	}
}

// TestObserverIsToldHowLongARequestHasWaited, and so is the latency of those that are sampled.
func TestObserverIsToldHowLongARequestHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		e := engine(t, login(func(p *policy.Policy) {
			p.QueueLimit, p.MaxWait = 1, time.Minute
			p.Limits = one(weir.TokenBucket(weir.PerSecond(1), 0))
		}), w.watch, func(o *policy.EngineOptions) { o.Clock = nil })
		var v policy.Verdict
		for range 1000 {
			r := request(ann)
			if err := verdictOf(e.Wait(context.Background(), &r, &v), &v); err != nil || !v.Allowed {
				t.Fatal(err, v.Decision())
			}
			v.Release()
		}
		for i, d := range w.decided[1:] {
			if d.took < time.Second-time.Microsecond || d.took > time.Second+time.Microsecond {
				t.Fatalf("request %d took %v", i+1, d.took)
			}
		}
		l := e.Report().Latency
		if l.Every != 64 || l.Count == 0 || l.Count > 100 || l.Quantile(0.5) != 64<<24 {
			t.Errorf("%+v, half of them within %v", l, l.Quantile(0.5))
		}
	})
}

// TestOnRefusedInContention: each refusal is reported once, with its own numbers.
func TestOnRefusedContention(t *testing.T) {
	var mu sync.Mutex
	told := map[uint64]string{}
	var next uint64
	e := engine(t, login(), func(o *policy.EngineOptions) {
		o.OnRefused = func(requests []*policy.Request, v *policy.Verdict) uint64 {
			mu.Lock()
			defer mu.Unlock()
			next++
			told[next] = requests[0].Client.String() + "=" + string(v.Parts[v.Binding].Key)
			return next
		}
	})
	var all sync.WaitGroup
	refusals := make([]int, 8)
	for g := range refusals {
		all.Go(func() {
			var v policy.Verdict
			client := fmt.Sprintf("192.0.2.%d", g)
			for range 1000 {
				r := request(client)
				e.Take(&r, &v)
				if !v.Allowed {
					refusals[g]++
					mu.Lock()
					if told[v.RefusalID] != client+"="+client {
						t.Errorf("%s got the refusal of %s", client, told[v.RefusalID])
					}
					mu.Unlock()
				} else if v.RefusalID != 0 {
					t.Errorf("a grant has the ID %d", v.RefusalID)
				}
				v.Release()
			}
		})
	}
	all.Wait()
	for g, n := range refusals {
		if n != 998 {
			t.Errorf("client %d was refused %d times", g, n)
		}
	}
	if next != 8*998 {
		t.Errorf("%d were told", next)
	}
}
