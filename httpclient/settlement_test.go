package httpclient_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// TestSettlement is about a client that reserves an estimate, and pays for what the answer says.
func TestSettlement(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []said
		end     func(s *httpclient.Settlement) bool
		settled bool
		left    int64
	}{
		{"nothing", []said{answering(200)}, func(*httpclient.Settlement) bool { return false }, false, 900},
		{"less", []said{answering(200)}, func(s *httpclient.Settlement) bool { return s.Commit(30) }, true, 970},
		{"more", []said{answering(200)}, func(s *httpclient.Settlement) bool { return s.Commit(300) }, true, 700},
		{"cancel", []said{answering(200)}, func(s *httpclient.Settlement) bool { return s.Cancel() }, true, 1000},
		{"twice", []said{answering(200)}, func(s *httpclient.Settlement) bool { s.Commit(30); return s.Commit(30) }, false, 970},
		{"sent again", []said{answering(429, "Retry-After: 1"), answering(200)}, func(s *httpclient.Settlement) bool { return s.Commit(30) }, true, 970},
		{"refused", []said{answering(429)}, func(s *httpclient.Settlement) bool { return s.Commit(0) }, true, 1000},
		{"redirected", []said{answering(307, "Location: /there"), answering(200)}, func(s *httpclient.Settlement) bool { return s.Commit(30) }, true, 970},
	} {
		synctest.Test(t, func(t *testing.T) {
			own := bucket(t, weir.TokenBucket(weir.PerHour(1000), 0), weir.Options{QueueLimit: 10})
			rt := transport(t, httpclient.Options{Limiter: own, Cost: func(*http.Request) int64 { return 100 }}, newScript(c.answers...).serve)
			ctx, settlement := httpclient.WithSettlement(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: rt}).Do(r)
			if err != nil || resp.Body.Close() != nil {
				t.Fatal(err)
			}
			if got := c.end(settlement); got != c.settled || own.Stats().Remaining != c.left {
				t.Errorf("%s: settled is %v, %d are left, want %d", c.name, got, own.Stats().Remaining, c.left)
			}
		})
	}
}

// TestSettlementWithoutARequest is about what was not sent, and costs nothing.
func TestSettlementWithoutARequest(t *testing.T) {
	own := bucket(t, weir.TokenBucket(weir.PerHour(1000), 0), weir.Options{})
	rt := transport(t, httpclient.Options{Limiter: own, Cost: func(*http.Request) int64 { return 1001 }}, newScript(answering(200)).serve)
	ctx, settlement := httpclient.WithSettlement(t.Context())
	if _, err := fetchFrom(ctx, rt, apiURL); !errors.Is(err, httpclient.ErrLimited) {
		t.Errorf("error %v", err)
	}
	if settlement.Commit(5) || settlement.Cancel() || own.Stats().Remaining != 1000 {
		t.Errorf("it was settled, %+v", own.Stats())
	}
}

// TestSettlementOfSlots is about slots that are in use until the request is settled.
func TestSettlementOfSlots(t *testing.T) {
	own := slots(t, 1, weir.Options{Name: "own"})
	rt := transport(t, httpclient.Options{Limiter: own}, newScript(answering(200)).serve)
	ctx, settlement := httpclient.WithSettlement(t.Context())
	if _, err := fetchFrom(ctx, rt, apiURL); err != nil || own.Stats().Remaining != 0 {
		t.Errorf("%v, %+v", err, own.Stats())
	}
	if !settlement.Commit(1) || own.Stats().Remaining != 1 {
		t.Errorf("%+v", own.Stats())
	}
}

// TestTokensPerMinuteOfAClient keeps callers, whose estimates are too high, below a limit of tokens of the server.
func TestTokensPerMinuteOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perMinute, estimate, actual, requests = 6000, 1000, 400, 60
		own, err := weir.New(weir.TokenBucket(weir.PerMinute(perMinute), 0), weir.Options{QueueLimit: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		rt := transport(t, httpclient.Options{
			Limiter: own, MaxWait: weir.Never, Cost: func(*http.Request) int64 { return estimate },
		}, func(*http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return says(200), nil
		})
		start := time.Now()
		var wait sync.WaitGroup
		for range requests {
			wait.Go(func() {
				ctx, settlement := httpclient.WithSettlement(context.Background())
				if _, err := fetchFrom(ctx, rt, apiURL); err != nil {
					t.Error(err)
				}
				settlement.Commit(actual)
			})
		}
		wait.Wait()
		// 24,000 tokens, 6,000 of which are there: 3 min, and not the 9 min that the estimates would take.
		if took := time.Since(start); took < 2*time.Minute+55*time.Second || took > 3*time.Minute+15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
