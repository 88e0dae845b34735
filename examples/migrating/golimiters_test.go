package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	tollboothlib "github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	httpratelib "github.com/go-chi/httprate"
	golimiterlib "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	throttledlib "github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelib "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/examples/migrating/golimiter"
	"github.com/weirhq/weir/examples/migrating/httprate"
	"github.com/weirhq/weir/examples/migrating/throttled"
	"github.com/weirhq/weir/examples/migrating/tollbooth"
	"github.com/weirhq/weir/examples/migrating/ulule"
)

// limited is a handler behind a middleware, which allows requests of a client.
type limited struct{ http.Handler }

// behind puts a handler that says 200 behind a middleware.
func behind(t *testing.T) func(middleware func(http.Handler) http.Handler, err error) limited {
	t.Helper()
	return func(middleware func(http.Handler) http.Handler, err error) limited {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return limited{middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
	}
}

// ask sends a request of a client.
func (l limited) ask(client, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, http.NoBody)
	r.RemoteAddr = client + ":1234"
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// allowed counts those of n requests of a client that are allowed.
func (l limited) allowed(t *testing.T, n int, client, path string) (count int) {
	t.Helper()
	for range n {
		switch w := l.ask(client, path); w.Code {
		case http.StatusOK:
			count++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	return count
}

// sides are what a handler is limited by before and after.
type sides struct{ before, after limited }

// check sends more requests of two clients at once than each may send.
func (s sides) check(t *testing.T, limit int) {
	t.Helper()
	for name, l := range map[string]limited{"before": s.before, "after": s.after} {
		for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
			if got := l.allowed(t, limit+10, client, "/"); got != limit {
				t.Errorf("%s: %d requests of %s are allowed, want %d", name, got, client, limit)
			}
		}
	}
}

// compare sends the same requests of three clients to both sides, at most pause apart, for 2000 times as long. Each status is the
// same.
func (s sides) compare(t *testing.T, pause time.Duration) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	statuses := map[int]int{}
	for begin := time.Now(); time.Since(begin) < 2000*pause; {
		time.Sleep(time.Duration(random.Int64N(int64(pause))))
		for range random.IntN(4) * random.IntN(8) {
			client := fmt.Sprintf("192.0.2.%d", random.IntN(3))
			old, now := s.before.ask(client, "/"), s.after.ask(client, "/")
			if old.Code != now.Code {
				t.Fatalf("%v after the beginning: before %d, after %d", time.Since(begin), old.Code, now.Code)
			}
			statuses[now.Code]++
		}
	}
	if statuses[http.StatusOK] < 1000 || statuses[http.StatusTooManyRequests] < 1000 {
		t.Errorf("the statuses are %v: that compares too little", statuses)
	}
}

// TestHTTPRate: both allow 100 at once. What follows a burst at the end of a window differs, and what a refusal says.
func TestHTTPRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sides{behind(t)(httprate.Before(), nil), behind(t)(httprate.After())}
		s.check(t, 100)
	})
	synctest.Test(t, func(t *testing.T) {
		s := sides{behind(t)(httprate.Before(), nil), behind(t)(httprate.After())}
		time.Sleep(59900 * time.Millisecond) // the end of the first window of both
		old, now := s.before.allowed(t, 100, "192.0.2.1", "/"), s.after.allowed(t, 100, "192.0.2.1", "/")
		if old != 100 || now != 100 {
			t.Fatalf("%d and %d are allowed at once", old, now)
		}
		if old, now := s.before.ask("192.0.2.1", "/").Header(), s.after.ask("192.0.2.1", "/").Header(); old.Get("Retry-After") != "60" ||
			now.Get("Retry-After") != "55" {
			t.Errorf("before: %v, after: %v", old, now)
		}
		for begin := time.Now(); time.Since(begin) < 54*time.Second; time.Sleep(100 * time.Millisecond) {
			old += s.before.allowed(t, 1, "192.0.2.1", "/")
			now += s.after.allowed(t, 1, "192.0.2.1", "/")
		}
		if old < 180 || now != 100 {
			t.Errorf("within 54 seconds httprate allows %d, weir %d", old, now)
		}
	})
}

// noCounter is a counter that cannot be reached.
type noCounter struct{ httpratelib.LimitCounter }

var errGone = errors.New("the store is gone")

func (noCounter) Config(int, time.Duration) {}

func (noCounter) Get(string, time.Time, time.Time) (current, previous int, err error) {
	return 0, 0, errGone
}

// gone is a store of the others that cannot be reached.
type gone struct {
	ululelib.Store
	throttledlib.GCRAStoreCtx
}

func (gone) Get(context.Context, string, ululelib.Rate) (ululelib.Context, error) {
	return ululelib.Context{}, errGone
}

func (gone) GetWithTime(context.Context, string) (value int64, now time.Time, err error) {
	return 0, time.Time{}, errGone
}

// TestStoresThatFail: what the others send if their store fails, by default, and weir in memory if its limiter is closed.
func TestStoresThatFail(t *testing.T) {
	byAddress := func(r *http.Request) (string, error) { return r.RemoteAddr, nil }
	failing := behind(t)(httpratelib.LimitBy(100, time.Minute, byAddress, httpratelib.WithLimitCounter(noCounter{})), nil)
	if got := failing.ask("192.0.2.1", "/").Code; got != http.StatusPreconditionRequired {
		t.Errorf("httprate: %d", got)
	}
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	middleware, err := golimiterlib.NewMiddleware(store, golimiterlib.IPKeyFunc())
	if err != nil {
		t.Fatal(err)
	}
	if got := behind(t)(middleware.Handle, nil).ask("192.0.2.1", "/").Code; got != http.StatusInternalServerError {
		t.Errorf("go-limiter: %d", got)
	}
	gcra, err := throttledlib.NewGCRARateLimiterCtx(gone{}, throttledlib.RateQuota{MaxRate: throttledlib.PerMin(100)})
	if err != nil {
		t.Fatal(err)
	}
	limit := throttledlib.HTTPRateLimiterCtx{RateLimiter: gcra}
	if got := behind(t)(limit.RateLimit, nil).ask("192.0.2.1", "/").Code; got != http.StatusInternalServerError {
		t.Errorf("throttled: %d", got)
	}
	panicked := func() (what any) {
		defer func() { what = recover() }()
		l := ululelib.New(gone{}, ululelib.Rate{Period: time.Minute, Limit: 100})
		behind(t)(stdlib.NewMiddleware(l).Handler, nil).ask("192.0.2.1", "/")
		return nil
	}()
	if panicked == nil {
		t.Error("ulule does not panic")
	}
}

// TestGoLimiter: both allow 100 at once. Retry-After is a date there, and not one of HTTP.
func TestGoLimiter(t *testing.T) {
	s := sides{behind(t)(golimiter.Before()), behind(t)(golimiter.After())}
	s.check(t, 100)
	old, now := s.before.ask("192.0.2.1", "/").Header().Get("Retry-After"), s.after.ask("192.0.2.1", "/").Header().Get("Retry-After")
	if _, err := http.ParseTime(old); err == nil || old == "" {
		t.Errorf("go-limiter says %q, which is a date of HTTP", old)
	}
	var seconds int
	if _, err := fmt.Sscan(now, &seconds); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("weir says %q: %v", now, err)
	}
}

// TestThrottled: each status is the same. A full memstore forgets which clients it has refused.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sides{behind(t)(throttled.Before()), behind(t)(throttled.After(), nil)}
		s.check(t, 20)
		s.compare(t, 2*time.Second)
	})
	store, err := memstore.NewCtx(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := throttledlib.NewGCRARateLimiterCtx(store, throttledlib.RateQuota{MaxRate: throttledlib.PerDay(1)})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerDay(1), 1), weir.KeyedOptions{MaxKeys: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer keyed.Close()
	for i, key := range []string{"a", "a", "b", "a"} {
		refused, _, err := l.RateLimitCtx(t.Context(), key, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := i == 1; refused != want {
			t.Errorf("request %d: throttled refuses: %t, want %t", i, refused, want)
		}
		if want := i == 0; keyed.Allow(key) != want {
			t.Errorf("request %d: weir allows: %t, want %t", i, !want, want)
		}
	}
}

// TestUlule: both allow 100 at once, and tell the same fields; there is no Retry-After there.
func TestUlule(t *testing.T) {
	s := sides{behind(t)(ulule.Before()), behind(t)(ulule.After())}
	s.check(t, 100)
	old, now := s.before.ask("192.0.2.1", "/").Header(), s.after.ask("192.0.2.1", "/").Header()
	for _, field := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining"} {
		if old.Get(field) == "" || old.Get(field) != now.Get(field) {
			t.Errorf("%s: %q before, %q after", field, old.Get(field), now.Get(field))
		}
	}
	if old.Get("Retry-After") != "" || now.Get("Retry-After") == "" {
		t.Errorf("Retry-After: %q before, %q after", old.Get("Retry-After"), now.Get("Retry-After"))
	}
}

// TestTollbooth: each status is the same. There each path is a limit of its own, here each route; and a client whose
// address is not found is not limited there.
func TestTollbooth(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/items/{id}", func(http.ResponseWriter, *http.Request) {})
	synctest.Test(t, func(t *testing.T) {
		s := sides{behind(t)(tollbooth.Before(), nil), behind(t)(tollbooth.After(mux))}
		s.check(t, 20)
		s.compare(t, 300*time.Millisecond)
		old, now := 0, 0
		for i := range 5 {
			path := fmt.Sprintf("/items/%d", i)
			old += s.before.allowed(t, 30, "192.0.2.1", path)
			now += s.after.allowed(t, 30, "192.0.2.1", path)
		}
		if old != 100 || now != 20 {
			t.Errorf("of 5 items tollbooth allows %d requests, weir %d", old, now)
		}
	})
	l := tollboothlib.NewLimiter(1, nil).SetIPLookup(tollboothlimiter.IPLookup{Name: "X-Real-IP"})
	if got := behind(t)(tollboothlib.HTTPMiddleware(l), nil).allowed(t, 100, "192.0.2.1", "/"); got != 100 {
		t.Errorf("without the field tollbooth allows %d of 100", got)
	}
}
