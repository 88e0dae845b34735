package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
)

func TestCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Keyed:   keyed(t, weir.TokenBucket(weir.PerSecond(1), 1), weir.KeyedOptions{QueueLimit: 5}),
			MaxWait: 2500 * time.Millisecond,
		})}.dial(t)
		start := time.Now()
		answers := make(chan error, 5)
		for range 5 {
			go func() { answers <- call(t.Context(), client) }()
		}
		served, refused := 0, 0
		for range 5 {
			if err := <-answers; err == nil {
				served++
			} else if delay, _ := details(err); delay > 0 {
				want(t, err, codes.ResourceExhausted)
				refused++
			}
		}
		// At once, after 1 s and after 2 s; the others would not be served in time, and are told so at once.
		if took := time.Since(start); served != 3 || refused != 2 || took != 2*time.Second {
			t.Errorf("%d served, %d refused in %v", served, refused, took)
		}
	})
}

func TestMaxWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 1, 5)
		var reasons []weir.Reason
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Limiter: limiter, MaxWait: 3 * time.Second,
			OnRefused: func(_ context.Context, r *grpclimit.Refusal) { reasons = append(reasons, r.Decision.Reason) },
		})}.dial(t)
		limiter.TryAcquire(1)
		start := time.Now()
		want(t, call(t.Context(), client), codes.ResourceExhausted)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(reasons) != 1 || reasons[0] != weir.ReasonDeadline {
			t.Errorf("refused because of %v", reasons)
		}
	})
}

func TestCallWhoseDeadlineIsTooEarlyIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		client := setup{service: s, server: limited(t, grpclimit.ServerOptions{
			Limiter: bucket(t, weir.TokenBucket(weir.PerMinute(1), 1), weir.Options{QueueLimit: 5}), MaxWait: weir.Never,
		})}.dial(t)
		want(t, call(t.Context(), client), codes.OK)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		err := call(ctx, client)
		want(t, err, codes.ResourceExhausted)
		if delay, _ := details(err); delay != time.Minute || time.Since(start) != 0 {
			t.Errorf("after %v it was told to wait for %v", time.Since(start), delay)
		}
		long, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		want(t, call(long, client), codes.OK)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func TestClientThatCancelsIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 1, 5)
		s := &service{}
		client := setup{service: s, server: limited(t, grpclimit.ServerOptions{
			Limiter: limiter, MaxWait: weir.Never, Logger: silent(t),
			OnRefused: func(_ context.Context, r *grpclimit.Refusal) { t.Errorf("refused: %+v", r.Decision) },
		})}.dial(t)
		lease := limiter.TryAcquire(1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		want(t, call(ctx, client), codes.Canceled)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, call(late, client), codes.DeadlineExceeded)
		synctest.Wait()
		if stats := limiter.Stats(); stats.Refused != 0 || stats.Waiters != 0 || stats.Allowed != 1 || s.served.Load() != 0 {
			t.Errorf("the limiter counts %+v, and %d were served", stats, s.served.Load())
		}
		lease.Release()
		want(t, call(t.Context(), client), codes.OK)
	})
}
