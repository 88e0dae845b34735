package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// picky is a cluster that fails to write some records.
type picky struct {
	durable.Engine

	mu   sync.Mutex
	fail func(name string) bool
}

type pickyTerm struct {
	durable.Term

	engine *picky
}

var errPicky = errors.New("this record cannot be written")

func (p *picky) Campaign(ctx context.Context, address string) (durable.Term, error) {
	t, err := p.Engine.Campaign(ctx, address)
	return &pickyTerm{t, p}, err
}

func (p *picky) fails(f func(name string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func (t *pickyTerm) Store(ctx context.Context, writes []durable.Write) (int64, error) {
	t.engine.mu.Lock()
	fail := t.engine.fail
	t.engine.mu.Unlock()
	for i := range writes {
		if fail != nil && fail(writes[i].Name) {
			return 0, errPicky
		}
	}
	return t.Term.Store(ctx, writes)
}

// TestPartCannotBeWritten: if the record of one limit of a request cannot be written, the request is unavailable, and what was taken
// of its other limits, durable or not, is there again.
func TestPartCannotBeWritten(t *testing.T) {
	for name, expiry := range map[string]time.Duration{"taken": 0, "reserved": time.Hour} {
		for _, k := range []int64{1, 32} {
			t.Run(fmt.Sprintf("%s, K is %d", name, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
					inner := m.Engine()
					e := &picky{Engine: inner}
					n := must(durable.NewNode(durable.NodeOptions{Engine: e, Address: "a", Owner: durable.OwnerOptions{Reserve: k}}))
					defer func() {
						_ = n.Close()
						_ = inner.Close()
					}()
					s := n
					a, b := tokens("a", 2, 50, 1), tokens("b", 2, 5, 1)
					a.Limit, b.Limit = limits.WithRate(a.Limit, weir.Per(1, time.Hour)), limits.WithRate(b.Limit, weir.Per(1, time.Hour))
					one := a
					one.N = 1
					ds := make([]weir.Decision, 2)
					taken := int64(0)
					for taken < 1 || k > 1 && taken < 40 && n.Stats().Owned.PermitsAhead < 2 { // so that its record comes to be ahead
						if err := store.Take(t.Context(), s, []store.Charge{one}, ds[:1]); err != nil {
							t.Fatal(err)
						}
						taken++
					}
					if ahead := n.Stats().Owned.PermitsAhead; k > 1 && ahead < 2 {
						t.Fatalf("%d permits ahead", ahead)
					}
					e.fails(func(name string) bool { return name == "1:b" })
					var err error
					if expiry == 0 {
						err = store.Take(t.Context(), s, []store.Charge{b, a}, ds)
					} else {
						var r store.Hold
						if r, err = store.Reserve(t.Context(), s, []store.Charge{b, a}, ds, expiry); r.ID != "" {
							t.Errorf("%+v", r)
						}
					}
					if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errPicky) {
						t.Errorf("%v", err)
					}
					e.fails(nil)
					left(t, s, a, 50-taken)
					left(t, s, b, 5)
					time.Sleep(time.Second)
					a.N, b.N = 50-taken, 5
					if err := store.Take(t.Context(), s, []store.Charge{a, b}, ds); err != nil || !ds[0].Allowed || !ds[1].Allowed {
						t.Errorf("%+v, %v", ds, err)
					}
				})
			})
		}
	}
}

// TestCanceledIsNotGivenBackTwice: permits of a reservation that was canceled are granted to others only when that is durable: or the
// next owner would find it, and give them back once more.
func TestCanceledIsNotGivenBackTwice(t *testing.T) {
	for range 20 {
		if canceledWhileAhead(t) {
			return
		}
	}
	t.Error("the record never came to be ahead")
}

func canceledWhileAhead(t *testing.T) (ahead bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		inner := m.Engine()
		e := &picky{Engine: inner}
		n := must(durable.NewNode(durable.NodeOptions{Engine: e, Address: "a", Owner: durable.OwnerOptions{Reserve: 64}}))
		t.Cleanup(func() {
			_ = n.Close()
			_ = inner.Close()
		})
		s := n
		c := tokens("a", 40, 100, 1)
		c.Limit = limits.WithRate(c.Limit, weir.Per(1, time.Hour))
		ds := make([]weir.Decision, 1)
		r, err := store.Reserve(t.Context(), s, []store.Charge{c}, ds, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		granted := int64(0)
		for c.N = 1; granted < 60; granted++ { // all that are left
			if err := store.Take(t.Context(), s, []store.Charge{c}, ds); err != nil || !ds[0].Allowed {
				t.Fatalf("%+v, %v", ds, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		if n.Stats().Owned.PermitsAhead < 5 { // which depends on which comes first
			return
		}
		ahead = true
		e.fails(func(string) bool { return true })
		if err := store.Cancel(t.Context(), s, r); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		time.Sleep(200 * time.Millisecond)
		for range 40 {
			if store.Take(t.Context(), s, []store.Charge{c}, ds) == nil && ds[0].Allowed {
				granted++
			}
		}
		inner.Cut(true) // it dies
		_ = inner.Close()
		next := m.Engine()
		other := must(durable.NewNode(durable.NodeOptions{Engine: next, Address: "b"}))
		s = other
		time.Sleep(2 * time.Minute) // the reservation has expired
		for store.Take(t.Context(), s, []store.Charge{c}, ds) == nil && ds[0].Allowed {
			granted++
		}
		if granted > 100 {
			t.Errorf("%d were granted of 100", granted)
		}
		_ = other.Close()
		_ = next.Close()
	})
	return ahead
}
