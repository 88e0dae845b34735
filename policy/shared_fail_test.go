package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestSharedAndLocalAreAllOrNothing: what refuses leaves the other one as it was, and a request that this process refuses does
// not ask the store.
func TestSharedAndLocalAreAllOrNothing(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	e := over(t, s, clock, &policy.Set{
		Policies: append(
			shared(
				policy.Policy{Name: "shared", Limits: one(perHour(3)), Key: policy.MethodText()},
				policy.Policy{Name: "total", Limits: one(perHour(100))},
			),
			policy.Policy{Name: "local", Limits: one(perHour(5)), Key: policy.HostText()},
			policy.Policy{Name: "use", Limits: one(weir.AtOnce(4))},
		),
		Rules: []policy.Rule{{Name: "all", Limits: uses("shared", "local", "total", "use")}},
	})
	v := new(policy.Verdict)
	for name, ask := range map[string]func(r *policy.Request) error{
		"take":         func(r *policy.Request) error { e.Take(r, v); return nil },
		"reserve":      func(r *policy.Request) error { e.Reserve(r, v); return nil },
		"wait":         func(r *policy.Request) error { return verdictOf(e.Wait(t.Context(), r, v), v) },
		"wait reserve": func(r *policy.Request) error { return verdictOf(e.WaitReserve(t.Context(), r, v), v) },
	} {
		host := strings.ReplaceAll(name, " ", "")
		request := func(cost int64) *policy.Request {
			return &policy.Request{Method: strings.ToUpper(name), Host: host, Cost: cost}
		}
		if err := ask(request(2)); err != nil || !v.Allowed {
			t.Fatalf("%s: %v, %+v", name, err, v)
		}
		v.Release()
		var total store.State
		total, _ = e.Inspect(t.Context(), "total", "", "")
		s.asked.Store(0)
		for range 5 {
			// The store refuses: 1 is left there, and 3 here.
			if err := ask(request(2)); err != nil || v.Allowed || v.Binding != 0 || v.Parts[1].Decision.Remaining != 3 ||
				!v.Parts[1].Decision.Allowed || !v.Parts[2].Decision.Allowed || v.Parts[0].Unasked || v.Parts[3].Decision.Remaining != 4 {
				t.Errorf("%s: %v, %+v", name, err, v)
			}
			v.Release()
		}
		if got := s.asked.Load(); got != 5 {
			t.Errorf("%s: the store was asked %d times", name, got)
		}
		s.asked.Store(0)
		for range 5 {
			// This process refuses: 3 are left of the 4.
			if err := ask(request(4)); err != nil || v.Allowed || v.Binding != 1 || !v.Parts[0].Unasked || !v.Parts[2].Unasked ||
				v.Parts[1].Unasked || !v.Parts[0].Decision.Allowed || v.Parts[0].Decision.Policy != "shared" {
				t.Errorf("%s: %v, %+v", name, err, v)
			}
			v.Cancel()
		}
		if got := s.asked.Load(); got != 0 {
			t.Errorf("%s: the store was asked %d times", name, got)
		}
		wantLeft(t, e, "local", host, 3)
		wantLeft(t, e, "use", "", 4)
		wantStored(t, e, "shared", "", strings.ToUpper(name), 1)
		wantStored(t, e, "total", "", "", total.Decision.Remaining)
	}
}

// TestSharedWaitsHereAndNotInTheStore: a request waits for the limits of this process, and then asks the store once.
func TestSharedWaitsHereAndNotInTheStore(t *testing.T) { synctest.Test(t, waitHere) }

func waitHere(t *testing.T) {
	s := memory(t, nil)
	e := over(t, s, nil, &policy.Set{
		Policies: append(shared(policy.Policy{Name: "shared", Limits: one(perHour(2))}),
			policy.Policy{Name: "use", Limits: one(weir.AtOnce(1)), QueueLimit: 10, MaxWait: time.Hour}),
		Rules: []policy.Rule{{Name: "all", Limits: uses("shared", "use")}},
	})
	for i, want := range []bool{true, false} {
		holder := new(policy.Verdict)
		if !takeKey(t.Context(), e, "use", "", 1, holder) || !holder.Allowed {
			t.Fatalf("%+v", holder)
		}
		s.asked.Store(0)
		type answer struct {
			v   *policy.Verdict
			err error
		}
		answers := make(chan answer)
		go func() {
			v := new(policy.Verdict)
			err := verdictOf(e.Wait(t.Context(), &policy.Request{}, v), v)
			answers <- answer{v, err}
		}()
		synctest.Wait()
		if e.Limiter("use", "").Stats().Waiters != 1 || s.asked.Load() != 0 {
			t.Error("the store was asked before the wait was over")
		}
		if i == 1 {
			if err := e.Reset(t.Context(), "shared", ""); err != nil {
				t.Fatal(err)
			}
			takeKey(t.Context(), e, "shared", "", 2, new(policy.Verdict))
			s.asked.Store(0)
		}
		holder.Release()
		a := <-answers
		if a.err != nil || a.v.Allowed != want || s.asked.Load() != 1 {
			t.Errorf("%d: asked %d times: %+v, %v", i, s.asked.Load(), a.v, a.err)
		}
		if !want && (a.v.Binding != 0 || a.v.Decision().Reason != weir.ReasonLimited) {
			t.Errorf("%+v", a.v)
		}
		a.v.Release()
		wantLeft(t, e, "use", "", 1)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	v := new(policy.Verdict)
	s.asked.Store(0)
	if err := verdictOf(e.Wait(canceled, &policy.Request{}, v), v); !errors.Is(err, context.Canceled) || v.Allowed || s.asked.Load() != 0 ||
		v.Decision().Reason != weir.ReasonCanceled {
		t.Errorf("asked %d times: %v, %+v", s.asked.Load(), err, v)
	}
	holder := new(policy.Verdict)
	takeKey(t.Context(), e, "use", "", 1, holder)
	brief, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := verdictOf(e.Wait(brief, &policy.Request{}, v), v); err != nil || v.Allowed || v.Decision().Reason != weir.ReasonDeadline || v.Binding != 1 {
		t.Errorf("%v, %+v", err, v)
	}
	holder.Release()
	wantLeft(t, e, "use", "", 1)
}

var errBroken = errors.New("broken")

// TestSharedStoreFails: every policy answers by its Fail, together with the other ones.
func TestSharedStoreFails(t *testing.T) {
	misuse := &weir.OptionError{Option: "Charge.Key", Value: "x", Accepted: "another"}
	for _, c := range []struct {
		name          string
		err           error
		fail          [2]policy.Fail
		allowed       bool
		reasons       [2]weir.Reason
		retry         time.Duration
		log           string
		notCounted    bool
		canceledCount uint64
	}{
		{name: "closed", err: store.ErrUnavailable, reasons: [2]weir.Reason{weir.ReasonUnavailable, weir.ReasonUnavailable}, retry: time.Second},
		{name: "open", err: store.ErrUnavailable, fail: [2]policy.Fail{policy.FailOpen, policy.FailOpen}, allowed: true},
		{
			name: "one of each", err: store.ErrUnavailable, fail: [2]policy.Fail{policy.FailOpen, policy.FailClosed},
			reasons: [2]weir.Reason{weir.ReasonNone, weir.ReasonUnavailable}, retry: time.Second,
		},
		{
			name: "local, which a plain store cannot do", err: store.ErrUnavailable, fail: [2]policy.Fail{policy.FailLocal, policy.FailOpen},
			reasons: [2]weir.Reason{weir.ReasonUnavailable, weir.ReasonNone}, retry: time.Second,
		},
		{name: "an error of its own", err: errBroken, fail: [2]policy.Fail{policy.FailOpen, policy.FailOpen}, allowed: true},
		{
			name: "misuse", err: misuse, fail: [2]policy.Fail{policy.FailOpen, policy.FailOpen},
			reasons: [2]weir.Reason{weir.ReasonUnavailable, weir.ReasonUnavailable}, retry: time.Second,
		},
		{
			name: "a store that was closed", err: store.ErrClosed, fail: [2]policy.Fail{policy.FailOpen, policy.FailOpen},
			reasons: [2]weir.Reason{weir.ReasonClosed, weir.ReasonClosed}, retry: weir.Never,
		},
	} {
		for _, reserve := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reserve=%v", c.name, reserve), func(t *testing.T) {
				clock := manualclock.New(1)
				s := memory(t, clock)
				var log bytes.Buffer
				e := engine(t, &policy.Set{
					Policies: append(shared(
						policy.Policy{Name: "a", Limits: one(perHour(10)), Fail: c.fail[0]},
						policy.Policy{Name: "b", Limits: one(perHour(20)), Fail: c.fail[1]},
						policy.Policy{Name: "shadow", Limits: one(perHour(1)), Mode: policy.ModeShadow},
					), policy.Policy{Name: "local", Limits: one(perHour(30))}),
					Rules: []policy.Rule{{Name: "all", Limits: uses("a", "local", "b", "shadow")}},
				}, func(o *policy.EngineOptions) {
					o.Store, o.Clock, o.Logger = s, clock, slog.New(slog.NewTextHandler(&log, nil))
				})
				s.fail = func() error { return c.err }
				v := new(policy.Verdict)
				const requests = 3
				for range requests {
					if reserve {
						e.Reserve(&policy.Request{}, v)
					} else {
						e.Take(&policy.Request{}, v)
					}
					reasons := [2]weir.Reason{v.Parts[0].Decision.Reason, v.Parts[2].Decision.Reason}
					if v.Allowed != c.allowed || reasons != c.reasons || v.Decision().RetryAfter != c.retry || !v.Parts[1].Decision.Allowed {
						t.Errorf("%+v", v)
					}
					v.Release()
				}
				if got := s.asked.Load(); got != requests {
					t.Errorf("the store was asked %d times", got)
				}
				want := int64(30)
				if c.allowed {
					want -= requests
				}
				wantLeft(t, e, "local", "", want)
				r := e.Report()
				if r.Policies[0].Unavailable != requests || r.Policies[1].Unavailable != requests || r.Policies[2].Unavailable != 0 {
					t.Errorf("%+v", r.Policies)
				}
				if got := strings.Count(log.String(), "a store failed"); got != 2 || !strings.Contains(log.String(), c.err.Error()) {
					t.Errorf("%d lines:\n%s", got, log.String())
				}
				s.fail = nil
				wantStored(t, e, "a", "", "", 10)
				wantStored(t, e, "b", "", "", 20)
			})
		}
	}
}

// TestSharedRequestThatIsCanceled asks in vain, and is counted as such; one whose time is up finds the store unavailable.
func TestSharedRequestThatIsCanceled(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	e := over(t, s, clock, &policy.Set{
		Policies: append(shared(policy.Policy{Name: "p", Limits: one(perHour(10)), Fail: policy.FailOpen}),
			policy.Policy{Name: "local", Limits: one(perHour(10))}),
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "local")}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := policy.Request{Context: ctx}
	for i, ask := range []func(v *policy.Verdict){
		func(v *policy.Verdict) { e.Take(&request, v) },
		func(v *policy.Verdict) { e.Reserve(&request, v) },
		func(v *policy.Verdict) { takeKey(ctx, e, "p", "", 1, v) },
		func(v *policy.Verdict) { reserveKey(ctx, e, "p", "", 1, v) },
	} {
		v := new(policy.Verdict)
		if ask(v); v.Allowed || v.Decision().Reason != weir.ReasonCanceled {
			t.Errorf("%d: %+v", i, v)
		}
		v.Release()
		if r := e.Report(); r.Canceled != uint64(i+1) || r.Refused != 0 || r.Policies[0].Unavailable != 0 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	wantStored(t, e, "p", "", "", 10)
	wantLeft(t, e, "local", "", 10)
	late, end := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer end()
	if v := take(e, policy.Request{Context: late}); !v.Allowed {
		t.Errorf("%+v", v)
	}
	if p := e.Report().Policies[0]; p.Unavailable != 1 {
		t.Errorf("%+v", p)
	}
}

// TestSharedEngineThatIsClosed refuses, leaves the store open, and settles what is still held.
func TestSharedEngineThatIsClosed(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	set := &policy.Set{
		Policies: shared(
			policy.Policy{Name: "p", Limits: one(weir.AtOnce(3)), Fail: policy.FailOpen},
			policy.Policy{Name: "shadow", Limits: one(perHour(10)), Mode: policy.ModeShadow},
		),
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "shadow")}},
	}
	e, other := over(t, s, clock, set), over(t, s, clock, set)
	held := take(e, policy.Request{})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	v := new(policy.Verdict)
	for i, ask := range []func(){
		func() { e.Take(&policy.Request{}, v) },
		func() { e.Peek(&policy.Request{}, v) },
		func() { e.Reserve(&policy.Request{}, v) },
		func() { _ = e.Wait(t.Context(), &policy.Request{}, v) },
		func() { takeKey(t.Context(), e, "p", "", 1, v) },
		func() { peekKey(t.Context(), e, "p", "", 1, v) },
	} {
		if ask(); v.Allowed || v.Decision().Reason != weir.ReasonClosed || v.Decision().RetryAfter != weir.Never {
			t.Errorf("%d: %+v", i, v)
		}
	}
	wantStored(t, other, "p", "", "", 2)
	held.Release()
	wantStored(t, other, "p", "", "", 3)
	if p := e.Report().Policies[0]; p.Unavailable+p.Expired+p.Unsettled != 0 {
		t.Errorf("%+v", p)
	}
}

// TestSharedKeyThatIsLong is kept under what stands for it.
func TestSharedKeyThatIsLong(t *testing.T) {
	clock := manualclock.New(1)
	var parts []policy.Text
	for i := range 12 {
		parts = append(parts, policy.ConstantText(strings.Repeat(fmt.Sprint(i%10), 100)))
	}
	key := policy.JoinText(append(parts, policy.MethodText())...)
	e := over(t, memory(t, clock), clock, &policy.Set{
		Policies: shared(policy.Policy{Name: "p", Limits: one(perHour(2)), Key: key}),
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	for i, method := range []string{"GET", "PUT", "GET", "GET", "PUT", "PUT"} {
		v := take(e, policy.Request{Method: method})
		if v.Allowed != (i < 3 || i == 4) || len(v.Parts[0].Key) < store.MostKeyBytes {
			t.Errorf("%d: %s: %+v", i, method, v)
		}
		if i == 5 {
			name := string(v.Parts[0].Key)
			wantStored(t, e, "p", "", name, 0)
			if err := e.Reset(t.Context(), "p", name); err != nil {
				t.Error(err)
			}
			wantStored(t, e, "p", "", name, 2)
			if takeKey(t.Context(), e, "p", name, 2, v); !v.Allowed {
				t.Errorf("%+v", v)
			}
		}
	}
}
