package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
)

// TestPortedWaitCodeIsRight runs what users of golang.org/x/time/rate write: no call goes on beyond the limit.
func TestPortedWaitCodeIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queue := range []int64{0, 5} {
			lim := mustBucket(t, weir.TokenBucket(weir.PerSecond(10), 1), weir.Options{QueueLimit: queue})
			began, passed := time.Now(), 0
			for range 1000 {
				if err := lim.Wait(t.Context(), 1); err != nil {
					if !errors.Is(err, weir.ErrNoQueue) || queue > 0 {
						t.Fatal(err)
					}
					continue
				}
				passed++
			}
			if most := 1 + int(time.Since(began)/(100*time.Millisecond)); passed > most || queue > 0 && passed != 1000 {
				t.Errorf("with a queue of %d: %d passed in %v", queue, passed, time.Since(began))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			for lim.Allow() {
				continue
			}
			if err := lim.Wait(ctx, 1); !errors.Is(err, weir.ErrRefused) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a deadline that cannot be met: %v", err)
			}
			cancel()
			if err := lim.Wait(ctx, 1); !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrRefused) {
				t.Errorf("a context that ended: %v", err)
			}
			if err := lim.Wait(t.Context(), 2); !errors.Is(err, weir.ErrRefused) {
				t.Errorf("more than the burst: %v", err)
			}
		}
	})
}

// TestPortedSemaphoreCodeIsRight runs what users of golang.org/x/sync/semaphore write: no more than the limit are inside.
func TestPortedSemaphoreCodeIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queue := range []int64{0, 100} {
			sem := mustConcurrency(t, 2, weir.Options{QueueLimit: queue})
			var inside, most, done atomic.Int64
			work := func() {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second)
				inside.Add(-1)
				done.Add(1)
			}
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					if i%2 == 0 {
						_ = sem.Do(t.Context(), 1, func() error { work(); return nil })
						return
					}
					lease, err := sem.Acquire(t.Context(), 1)
					if err != nil {
						return
					}
					defer lease.Release()
					work()
				})
				synctest.Wait()
			}
			all.Wait()
			if most.Load() != 2 || queue > 0 && done.Load() != 10 {
				t.Errorf("with a queue of %d: %d at a time, %d in all", queue, most.Load(), done.Load())
			}
		}
	})
}

// spent are one of each kind of limiter, of which all permits are out for an hour, without a queue.
//
//nolint:forcetypeassert // each is what its constructor returns
func spent(t *testing.T) []any {
	t.Helper()
	must := func(l any, err error) any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	bucket := must(weir.New(weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})).(weir.Acquirer)
	all := []any{
		bucket,
		must(weir.New(weir.FixedWindow(weir.PerHour(1)), weir.Options{})),
		must(weir.New(weir.SlidingWindow(weir.PerHour(1), 0), weir.Options{})),
		must(weir.New(weir.SlidingCounter(weir.PerHour(1)), weir.Options{})),
		must(weir.New(weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth}), weir.Options{})),
		must(weir.NewConcurrency(1, weir.Options{})),
		must(overload.NewAdaptive(overload.AdaptiveOptions{InitialLimit: 1, MaxLimit: 1})),
	}
	for _, l := range all {
		if lease := l.(weir.Acquirer).TryAcquire(1); !lease.Allowed() {
			t.Fatalf("%T: %v", l, lease.Err())
		}
	}
	all = append(all,
		must(weir.NewChain(bucket, mustConcurrency(t, 1, weir.Options{}))),
		must(weir.NewChain(mustConcurrency(t, 1, weir.Options{}), bunch{Acquirer: bucket})),
	)
	perKey := must(weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 1), weir.KeyedOptions{})).(*weir.Keyed[string])
	perKey.TryAcquire("", 1)
	slots := must(weir.NewKeyedConcurrency[string](1, weir.KeyedOptions{})).(*weir.KeyedConcurrency[string])
	slots.TryAcquire("", 1)
	return append(all, perKey, slots)
}

// waitingCalls calls f with each method of the limiters that takes a context, and with the functions of the package that do, as a
// call that asks for n permits with ctx.
func waitingCalls(t *testing.T, limiters []any, f func(name string, call func(ctx context.Context, n int64) (ran bool, err error))) {
	t.Helper()
	calls := 0
	one := func(name string, method reflect.Value) {
		in := method.Type()
		if in.NumIn() == 0 || in.In(0) != reflect.TypeFor[context.Context]() {
			return
		}
		calls++
		f(name, func(ctx context.Context, n int64) (ran bool, err error) {
			args := []reflect.Value{reflect.Zero(in.In(0))}
			if ctx != nil {
				args[0] = reflect.ValueOf(ctx)
			}
			for i := 1; i < in.NumIn(); i++ {
				switch in.In(i) {
				case reflect.TypeFor[int64]():
					args = append(args, reflect.ValueOf(n))
				case reflect.TypeFor[func() error]():
					args = append(args, reflect.ValueOf(func() error { ran = true; return nil }))
				case reflect.TypeFor[string]():
					args = append(args, reflect.ValueOf(""))
				default:
					t.Fatalf("%s has an argument of type %v: what is it?", name, in.In(i))
				}
			}
			out := method.Call(args)
			err, _ = reflect.TypeAssert[error](out[len(out)-1])
			if in.Out(in.NumOut()-1) != reflect.TypeFor[error]() {
				t.Errorf("%s returns no error", name)
			}
			if len(out) == 2 {
				lease, _ := reflect.TypeAssert[weir.Lease](out[0])
				if ran = lease.Allowed(); !ran && lease.Err() == nil {
					t.Errorf("%s: the error of the lease is nil", name)
				}
				lease.Release()
				lease.Commit(1)
				lease.Cancel()
			}
			return ran, err
		})
	}
	for _, l := range limiters {
		v := reflect.ValueOf(l)
		for i := range v.NumMethod() {
			one(fmt.Sprintf("%T.%s", l, v.Type().Method(i).Name), v.Method(i))
		}
		if k, ok := l.(*weir.Keyed[string]); ok {
			for name, all := range map[string]func(context.Context, []weir.Lease, ...keyset.Charge) ([]weir.Lease, int, error){
				"AcquireAll": keyset.AcquireAll, "ReserveAll": keyset.ReserveAll,
			} {
				one(name, reflect.ValueOf(func(ctx context.Context, n int64) (weir.Lease, error) {
					leases, binding, err := all(ctx, nil, keyset.Charge{Limiter: k, N: n})
					return leases[binding], err
				}))
			}
		}
	}
	if calls < 30 {
		t.Errorf("only %d calls", calls)
	}
}

// TestEveryCallThatMayWaitReturnsAnErrorWhenRefused finds them by reflection, so that none can be forgotten.
func TestEveryCallThatMayWaitReturnsAnErrorWhenRefused(t *testing.T) {
	waitingCalls(t, spent(t), func(name string, call func(context.Context, int64) (bool, error)) {
		for _, n := range []int64{-1, 1, 2, 1 << 60} {
			ran, err := call(t.Context(), n)
			refused, ok := errors.AsType[*weir.RefusedError](err)
			if ran || !ok || !errors.Is(err, weir.ErrRefused) || refused.Decision.Allowed || refused.Permits != n {
				t.Errorf("%s of %d permits: %v, %v", name, n, ran, err)
				continue
			}
			if n == -1 && (refused.Decision.Reason != weir.ReasonInvalid || !strings.HasSuffix(err.Error(), "must be 0 or more")) {
				t.Errorf("%s of %d permits: %v", name, n, err)
			}
			if n == 1 && (!errors.Is(err, weir.ErrNoQueue) || !strings.Contains(err.Error(), "set QueueLimit")) {
				t.Errorf("%s does not say that there is no queue: %v", name, err)
			}
		}
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		ran, err := call(ctx, 1)
		if ran || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err, weir.ErrRefused) {
			t.Errorf("%s with a context that ended: %v, %v", name, ran, err)
		}
	})
}

// panics is what f panics with.
func panics(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

// TestNilContextPanicsAtTheCall whether the call would have to wait or not.
func TestNilContextPanicsAtTheCall(t *testing.T) {
	for _, n := range []int64{0, 1, 5} {
		waitingCalls(t, spent(t), func(name string, call func(context.Context, int64) (bool, error)) {
			if got := panics(func() { _, _ = call(nil, n) }); got != "weir: nil context" {
				t.Errorf("%s of %d: %q", name, n, got)
			}
		})
	}
}

func TestNilFunctionsPanicAtTheCall(t *testing.T) {
	sem, bucket := mustConcurrency(t, 1, weir.Options{}), mustBucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})
	chain := mustChain(t, sem)
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := weir.NewKeyedConcurrency[string](1, weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var none *weir.Limiter
	for name, call := range map[string]func(){
		"NewPressure":             func() { overload.NewPressure("p", nil) },
		"LimiterPressure":         func() { overload.LimiterPressure("p", nil) },
		"LimiterPressure pointer": func() { overload.LimiterPressure("p", none) },
		"Concurrency.Do":          func() { _ = sem.Do(t.Context(), 1, nil) },
		"Chain.Do":                func() { _ = chain.Do(t.Context(), 1, nil) },
		"KeyedConcurrency.Do":     func() { _ = slots.Do(t.Context(), "", 1, nil) },
	} {
		if got := panics(call); !strings.HasPrefix(got, "weir: ") || !strings.Contains(got, ": nil ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if sem.Stats().Remaining != 1 || bucket.Stats().Remaining != 1 || keyed.Stats().Allowed != 0 {
		t.Error("permits were taken for a nil function")
	}
	_, err = overload.NewShedder(overload.ShedderOptions{Sources: []overload.Pressure{(*nilPressure)(nil)}})
	if _, ok := errors.AsType[*weir.OptionError](err); !ok {
		t.Errorf("a nil pointer as a source: %v", err)
	}
}

type nilPressure struct{ x float64 }

func (p *nilPressure) Pressure(int64) (float64, error) { return p.x, nil }
func (*nilPressure) String() string                    { return "nil" }

// TestZeroLimitersPanic in each method, and at each call: a zero value must not look like a limiter that refuses, or grants, and
// a server that recovers must not wait for a lock that the first call has kept.
func TestZeroLimitersPanic(t *testing.T) {
	for _, zero := range []func() weir.Acquirer{
		func() weir.Acquirer { return new(weir.Limiter) }, func() weir.Acquirer { return new(weir.Concurrency) },
		func() weir.Acquirer { return new(overload.Adaptive) }, func() weir.Acquirer { return new(weir.Chain) },
	} {
		for name, call := range map[string]func(l weir.Acquirer){
			"TryAcquire": func(l weir.Acquirer) { l.TryAcquire(1) },
			"TryReserve": func(l weir.Acquirer) { l.TryReserve(1) },
			"Acquire":    func(l weir.Acquirer) { _, _ = l.Acquire(t.Context(), 1) },
			"Reserve":    func(l weir.Acquirer) { _, _ = l.Reserve(t.Context(), 1) },
			"Peek":       func(l weir.Acquirer) { l.Peek(1) },
			"Stats":      func(l weir.Acquirer) { l.Stats() },
		} {
			l := zero()
			for range 2 {
				if panics(func() { call(l) }) == "" {
					t.Errorf("%T: %s does not panic", l, name)
				}
			}
		}
	}
	limiter, permits := new(weir.Limiter), new(weir.Concurrency)
	for name, call := range map[string]func(){
		"Allow": func() { limiter.Allow() }, "Wait": func() { _ = limiter.Wait(t.Context(), 1) },
		"Close": func() { _ = limiter.Close() }, "SetLimit": func() { _ = permits.SetLimit(1) },
		"in a chain": func() { mustChain(t, mustConcurrency(t, 1, weir.Options{}), limiter).TryAcquire(1) },
	} {
		for range 2 {
			if got := panics(call); !strings.Contains(got, "zero limiter") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	for name, call := range map[string]func(){
		"zero": func() { new(weir.Chain).TryAcquire(0) }, "negative": func() { new(weir.Chain).Peek(-1) },
		"close": func() { _ = new(weir.Chain).Close() },
	} {
		if got := panics(call); !strings.Contains(got, "NewChain") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestDoReleasesWhateverHappens in f.
func TestDoReleasesWhateverHappens(t *testing.T) {
	sem := mustConcurrency(t, 2, weir.Options{})
	adaptive, err := overload.NewAdaptive(overload.AdaptiveOptions{InitialLimit: 2})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyedConcurrency[string](2, weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := mustConcurrency(t, 2, weir.Options{})
	chain := mustChain(t, pool, mustBucket(t, weir.TokenBucket(weir.PerSecond(1e6), 1e6), weir.Options{}))
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		do   func(f func() error) error
		left func() int64
	}{
		"concurrency": {func(f func() error) error { return sem.Do(t.Context(), 2, f) }, func() int64 { return sem.Stats().Remaining }},
		"adaptive": {
			func(f func() error) error { return adaptive.Do(t.Context(), 2, f) }, func() int64 { return adaptive.Stats().Remaining },
		},
		"keyed": {
			func(f func() error) error { return keyed.Do(t.Context(), "k", 2, f) },
			func() int64 { return keyed.Peek("k", 0).Remaining },
		},
		"chain": {func(f func() error) error { return chain.Do(t.Context(), 2, f) }, func() int64 { return pool.Stats().Remaining }},
	} {
		inside := int64(-1)
		if err := c.do(func() error { inside = c.left(); return failure }); !errors.Is(err, failure) || inside != 0 {
			t.Errorf("%s: %v, %d left inside", name, err, inside)
		}
		if panics(func() { _ = c.do(func() error { panic("in f") }) }) != "in f" || c.left() != 2 {
			t.Errorf("%s: %d left after a panic", name, c.left())
		}
		if err := c.do(func() error { return c.do(func() error { t.Error("two inside"); return nil }) }); !errors.Is(err, weir.ErrNoQueue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChainAsksEachLimiterOnce also one of another kind, and when it refuses.
func TestChainAsksEachLimiterOnce(t *testing.T) {
	bucket := mustBucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{Name: "foreign"})
	slow := mustBucket(t, weir.TokenBucket(weir.Per(1, 10*time.Hour), 0), weir.Options{Name: "slow"})
	var log []string
	c := mustChain(t, mustConcurrency(t, 1, weir.Options{}), &recorder{bucket, "foreign", &log, nil}, slow)
	slow.Allow()
	bucket.Allow()
	for _, call := range []func(context.Context, int64) (weir.Lease, error){c.Acquire, c.Reserve} {
		log = nil
		before := bucket.Stats().Refused
		lease, err := call(t.Context(), 1)
		if d := lease.Decision(); !errors.Is(err, weir.ErrNoQueue) || d.Policy != "slow" {
			t.Errorf("%+v, %v", d, err)
		}
		if asked := bucket.Stats().Refused - before; asked != 1 || len(log) != 1 {
			t.Errorf("asked %d times: %q", asked, log)
		}
	}
	if s := c.Stats(); s.Refused != 2 || s.Limit != 1 {
		t.Errorf("%+v", s)
	}
}

// TestKeysWithNaNAreLimited: a NaN equals nothing, not even itself.
func TestKeysWithNaNAreLimited(t *testing.T) {
	nan := math.NaN()
	limited(t, 1.5, nan, math.Float64frombits(0x7ff8000000000123), -nan)
	limited(t, float32(1.5), float32(nan), -float32(nan))
	limited(t, complex(1, 2), complex(nan, 0), complex(0, nan))
	limited(t, [2]float64{1, 2}, [2]float64{nan, 1}, [2]float64{1, nan})
	type user struct {
		name   string
		weight float64
	}
	limited(t, user{"a", 1}, user{"a", nan}, user{"b", nan})
	limited(t, any("a"), any(nan), any([1]float64{nan}), any(user{"a", nan}))
}

// limited asks for 100 permits of NaN keys by turns, of which there are 5.
func limited[K comparable](t *testing.T, other K, nans ...K) {
	t.Helper()
	k, err := weir.NewKeyed[K](weir.TokenBucket(weir.PerHour(1), 5), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	granted := 0
	for i := range 100 {
		key := nans[i%len(nans)]
		var allowed bool
		switch i % 3 {
		case 0:
			allowed = k.Allow(key)
		case 1:
			allowed = k.TryAcquire(key, 1).Allowed()
		default:
			allowed = k.Wait(t.Context(), key, 1) == nil
		}
		if allowed {
			granted++
		}
	}
	if granted != 5 || k.Stats().Keys != 1 || k.Peek(nans[0], 1).Allowed || !k.Allow(other) {
		t.Errorf("%T: %d granted, %+v", other, granted, k.Stats())
	}
	if k.Reset(nans[0]); !k.Allow(nans[len(nans)-1]) {
		t.Errorf("%T: not reset", other)
	}
}

// TestLimitOfAKeyIsAskedOnceAndNotAfterClose in each call that has a key.
func TestLimitOfAKeyIsAskedOnceAndNotAfterClose(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		asked := 0
		k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerHour(5), 0), weir.KeyedOptions{}, func(string) weir.Limit {
			asked++
			if wrong {
				return weir.TokenBucket(weir.PerHour(-1), 0)
			}
			return weir.TokenBucket(weir.PerHour(6), 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		charge := keyset.Charge{Limiter: k, Key: "a", N: 1}
		calls := map[string]func(){
			"Allow":         func() { k.Allow("a") },
			"TryAcquire":    func() { k.TryAcquire("a", 1) },
			"Take":          func() { k.Take("a", 1) },
			"TryReserve":    func() { k.TryReserve("a", 1).Cancel() },
			"Acquire":       func() { _, _ = k.Acquire(t.Context(), "a", 1) },
			"Reserve":       func() { _, _ = k.Reserve(t.Context(), "a", 1) },
			"Wait":          func() { _ = k.Wait(t.Context(), "a", 1) },
			"Peek":          func() { k.Peek("a", 1) },
			"Override":      func() { _ = keyset.Of(k).Override("a", weir.TokenBucket(weir.PerHour(7), 0), time.Hour) },
			"TryAcquireAll": func() { keyset.TryAcquireAll(nil, charge) },
			"AcquireAll":    func() { _, _, _ = keyset.AcquireAll(t.Context(), nil, charge) },
			"PeekAll":       func() { keyset.PeekAll(nil, charge) },
			"DebitAll":      func() { keyset.DebitAll(nil, charge) },
		}
		for _, closed := range []bool{false, true} {
			if closed {
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			}
			for name, call := range calls {
				asked = 0
				if call(); asked != 1 && !closed || asked != 0 && closed {
					t.Errorf("%s, closed %v, wrong %v: asked %d times", name, closed, wrong, asked)
				}
			}
		}
		if _, err := k.Acquire(t.Context(), "a", 1); !errors.Is(err, weir.ErrClosed) {
			t.Error(err)
		}
	}
}

// TestOnePermitIsNoPlural in the error of a call that was given up.
func TestOnePermitIsNoPlural(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := mustConcurrency(t, 1, weir.Options{}).Acquire(ctx, 1)
	if got := fmt.Sprint(err); got != "weir: acquire 1 permit: context canceled" {
		t.Error(got)
	}
}
