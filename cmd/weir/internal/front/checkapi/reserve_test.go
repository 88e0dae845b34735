package checkapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

func post(h http.Handler, path, body string, arguments ...any) *httptest.ResponseRecorder {
	return send(h, "POST", path, "application/json", fmt.Sprintf(body, arguments...))
}

func TestReserve(t *testing.T) {
	h, _ := newConfigured(t, several+"  - {name: slow, match: {path: /slow}, limits: {policy: large, cost: 60}}\n", policy.EngineOptions{Clock: manualclock.New(0)})
	left := func(name string, want int64) {
		t.Helper()
		if got := remaining(t, h, name, "192.0.2.1"); got != want {
			t.Errorf("%d of %s are left, want %d", got, name, want)
		}
	}
	r := post(h, "/v1/reserve", `{"policy":"large","key":"192.0.2.1","cost":40,"expires_in":30.5}`)
	want := `{"allowed":true,"reason":"none","policy":"large","limit":100,"remaining":60,"retry_after":0,"reset_after":1440,"id":"`
	if r.Code != 200 || !strings.HasPrefix(r.Body.String(), want) || !strings.HasSuffix(r.Body.String(), `","expires_in":30.5}`+"\n") ||
		r.Header().Get("Ratelimit") != `"large";r=60;t=1440` {
		t.Errorf("%d %s %v", r.Code, r.Body, r.Header())
	}
	left("large", 60)
	first := reserved(t, h, `{"policy":"large","key":"192.0.2.1","cost":10}`)
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/commit", `{"id":"` + first + `","cost":4}`, 200, `{"id":"` + first + `","settled":"committed"}`},
		{"/v1/commit", `{"id":"` + first + `","cost":4}`, 404, `there is no such reservation`},
		{"/v1/cancel", `{"id":"` + first + `"}`, 404, `"field":"id"`},
		{"/v1/commit", `{"id":"","cost":4}`, 404, `id \"\": there is no such reservation`},
	} {
		if r = post(h, step.path, "%s", step.body); r.Code != step.status || !strings.Contains(r.Body.String(), step.want) {
			t.Errorf("%s %s: %d %s", step.path, step.body, r.Code, r.Body)
		}
	}
	left("large", 56)
	second := reserved(t, h, `{"policy":"large","key":"192.0.2.1","cost":10}`)
	if r = post(h, "/v1/cancel", `{"id":"%s"}`, second); r.Code != 200 || r.Body.String() != `{"id":"`+second+`","settled":"canceled"}`+"\n" {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left("large", 56)

	// More than was reserved is charged, and no cost stands for what was reserved.
	third := reserved(t, h, `{"policy":"large","key":"192.0.2.1","cost":10}`)
	if r = post(h, "/v1/commit", `{"id":"%s","cost":16}`, third); r.Code != 200 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left("large", 40)
	if r = post(h, "/v1/commit", `{"id":"%s"}`, reserved(t, h, `{"policy":"large","key":"192.0.2.1","cost":5}`)); r.Code != 200 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left("large", 35)

	// A described request reserves what the rules say.
	r = post(h, "/v1/reserve", `{"request":{"path":"/two","client":"192.0.2.1","cost":3},"expires_in":60}`)
	if r.Code != 200 || !strings.Contains(r.Body.String(), `"decisions":[`) || !strings.Contains(r.Body.String(), `,"id":"`) {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left("two", 2)
	r = post(h, "/v1/reserve", `{"request":{"path":"/slow","client":"192.0.2.1"}}`)
	if r.Code != 429 || strings.Contains(r.Body.String(), `"id"`) || r.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	// One that no limit applies to is settled as any other.
	if r = post(h, "/v1/cancel", `{"id":"%s"}`, reserved(t, h, `{"request":{"path":"/free"}}`)); r.Code != 200 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left("large", 32)
}

func TestReserveProblems(t *testing.T) {
	h, _ := newFront(t)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/reserve", `{}`, "key: is missing"},
		{"/v1/reserve", `{"key":"a","cost":0}`, "cost 0: must be a whole number from 1 to 10^15"},
		{"/v1/reserve", `{"request":{"cost":0}}`, "request.cost 0: must be a whole number from 1 to 10^15"},
		{"/v1/reserve", `{"key":"a","expires_in":0}`, "expires_in 0: must be a number of seconds from 0.001 to 86400"},
		{"/v1/reserve", `{"key":"a","expires_in":0.0009}`, "expires_in 0.0009: must be"},
		{"/v1/reserve", `{"key":"a","expires_in":86400.5}`, "expires_in 86400.5: must be"},
		{"/v1/reserve", `{"key":"a","expires_in":"60s"}`, `expires_in "60s": must be`},
		{"/v1/reserve", `{"key":"a","ttl":60}`, `field "ttl": must be policy, key, cost, wait and expires_in, or request`},
		{"/v1/reserve", `{"key":"a","wait":5,"request":{}}`, "request: stands beside policy, key, cost, charge or wait"},
		{"/v1/reserve", `{"key":"a","expires_in":5,"expires_in":5}`, "expires_in: stands there twice"},
		{"/v1/reserve", `{"request":{}} {}`, "expected nothing after the object"},
		{"/v1/commit", `{}`, "id: is missing; must be the id of a reservation"},
		{"/v1/commit", `{"id":7}`, "id 7: must be the id of a reservation, a string"},
		{"/v1/commit", `{"id":"a","cost":-1}`, "cost -1: must be a whole number from 0 to 10^15"},
		{"/v1/commit", `{"id":"a","actual":1}`, `field "actual": must be id or cost`},
		{"/v1/cancel", `{"id":"a","cost":1}`, `field "cost": must be id`},
		{"/v1/cancel", `["a"]`, "the body must be a JSON object"},
	} {
		r := post(h, c.path, "%s", c.body)
		var p struct{ Detail string }
		if err := unmarshal(r.Body.String(), &p); err != nil || r.Code != 400 || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, r.Code, p.Detail, c.want)
		}
	}
	if n := remaining(t, h, "default", "a"); n != 20 {
		t.Errorf("%d are left", n)
	}
}

// TestTooManyReservations: what is not kept is not charged, and its decision is not told.
func TestTooManyReservations(t *testing.T) {
	h := newFixed(t, manualclock.New(0), policy.Policy{
		Name: "default", Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1000), 0)}},
	})
	for range 90 { // of 100: one address has nine in ten
		reserved(t, h, `{"key":"a"}`)
	}
	r := post(h, "/v1/reserve", `{"key":"a"}`)
	if r.Code != 503 || r.Header().Get("Retry-After") != "1" || r.Header().Get("Ratelimit") != "" ||
		!strings.Contains(r.Body.String(), "too many reservations are open by this address") {
		t.Errorf("%d %v %s", r.Code, r.Header(), r.Body)
	}
	if n := remaining(t, h, "default", "a"); n != 910 {
		t.Errorf("%d are left", n)
	}
}

// TestReserveWaits: a client that is ready to wait gets a slot when a reservation is canceled or expires.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, err := live.Fixed(&policy.Set{Policies: []policy.Policy{{
			Name: "default", Key: policy.NamedKey(), QueueLimit: 5, MaxWait: time.Hour,
			Limits: []policy.Limit{{Limit: weir.AtOnce(1)}},
		}}}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		held := holds.New(holds.Options{})
		h := checkapi.NewHandler(checkapi.Options{Limits: limits, Holds: held})
		first, start := reserved(t, h, `{"key":"a"}`), time.Now()
		time.AfterFunc(3*time.Second, func() {
			if r := post(h, "/v1/cancel", `{"id":"%s"}`, first); r.Code != 200 {
				t.Errorf("%d %s", r.Code, r.Body)
			}
		})
		reserved(t, h, `{"key":"a","wait":10,"expires_in":5}`)
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("waited %v", waited)
		}
		third := reserved(t, h, `{"request":{"path":"/"},"expires_in":5}`) // no rule holds
		if r := post(h, "/v1/reserve", `{"key":"a","wait":2}`); r.Code != 429 || !strings.Contains(r.Body.String(), `"reason":"deadline"`) {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		reserved(t, h, `{"key":"a","wait":10}`)
		if waited := time.Since(start); waited != 8*time.Second {
			t.Errorf("waited %v", waited)
		}
		synctest.Wait()
		if r := post(h, "/v1/cancel", `{"id":"%s"}`, third); r.Code != 404 {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		// A client that goes away while it waits gets nothing, and leaves nothing behind.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/reserve", strings.NewReader(`{"key":"a","wait":30}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Body.Len() > 0 || held.Len() != 1 {
			t.Errorf("%s, %d open", w.Body, held.Len())
		}
		// A server that ends tells those who wait, and cancels what is open at the very end.
		time.AfterFunc(time.Second, h.EndWaiting)
		if r := post(h, "/v1/reserve", `{"key":"a","wait":30}`); r.Code != 503 || !strings.Contains(r.Body.String(), `"reason":"closed"`) {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		held.Close()
		if r := check(h, `{"key":"a"}`); r.Code != 200 {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		if r := post(h, "/v1/reserve", `{"key":"a"}`); r.Code != 503 {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		if err := limits.Engine().Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestContentionConservesPermits: clients that check, batch, reserve, commit and cancel at the same time, and leave reservations to
// expire, find in the end what they have not used. Nothing is lost, nothing is minted, and at no time is more out than there is.
func TestContentionConservesPermits(t *testing.T) {
	const all = 3000
	one := func(name string) policy.Policy {
		return policy.Policy{Name: name, Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.FixedWindow(weir.Rate{Permits: all, Period: 300 * 24 * time.Hour})}}}
	}
	limits, err := live.Fixed(&policy.Set{Policies: []policy.Policy{one("a"), one("b")}}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Engine().Close()
	held := holds.New(holds.Options{Most: 200})
	h := checkapi.NewHandler(checkapi.Options{Limits: limits, Holds: held})
	var (
		wait  sync.WaitGroup
		spent [2]atomic.Int64
		ids   = make(chan string, 10_000) // "0" or "1" and the id
		done  [5]atomic.Int64
	)
	worker := func(random *rand.Rand) {
		which := random.IntN(2)
		name := string(rune('a' + which))
		switch what := random.IntN(5); what {
		case 0:
			if r := post(h, "/v1/check", `{"policy":"%s","key":"k","cost":2}`, name); r.Code == 200 {
				spent[which].Add(2)
				done[what].Add(1)
			}
		case 1:
			cost := random.Int64N(4)
			_, answer := batch(t, h, fmt.Sprintf(`{"checks":[{"policy":"a","key":"k","cost":%d},{"policy":"b","key":"k","cost":3},{"policy":"a","key":"k"}],"atomic":true}`, 1+cost))
			if answer.Allowed {
				spent[0].Add(2 + cost)
				spent[1].Add(3)
				done[what].Add(1)
			}
		case 2:
			_, answer := batch(t, h, `{"checks":[{"policy":"a","key":"k","cost":4},{"policy":"b","key":"k","cost":1}]}`)
			for i, cost := range []int64{4, 1} {
				if answer.Results[i].Allowed {
					spent[i].Add(cost)
					done[what].Add(1)
				}
			}
		case 3:
			expiry := 0.001 + float64(random.IntN(10))/1000
			if random.IntN(3) == 0 {
				expiry = 3600 // on a slow machine all others may have expired before they are settled
			}
			r := post(h, "/v1/reserve", `{"policy":"%s","key":"k","cost":%d,"expires_in":%g}`, name, 1+random.IntN(30), expiry)
			var made struct{ ID string }
			if err := unmarshal(r.Body.String(), &made); err == nil && r.Code == 200 {
				ids <- fmt.Sprint(which, made.ID)
			}
		case 4:
			select {
			case id := <-ids:
				which, actual := int(id[0]-'0'), random.Int64N(3)
				if random.IntN(2) == 0 {
					if post(h, "/v1/cancel", `{"id":"%s"}`, id[1:]).Code == 200 {
						done[3].Add(1)
					}
				} else if post(h, "/v1/commit", `{"id":"%s","cost":%d}`, id[1:], actual).Code == 200 {
					spent[which].Add(actual)
					done[4].Add(1)
				}
			default:
			}
		}
	}
	for n := range 6 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(11, uint64(n)))
			for range 250 {
				worker(random)
			}
		})
	}
	wait.Wait()
	held.Close()
	for i, name := range []string{"a", "b"} {
		if got, want := remaining(t, h, name, "k"), all-spent[i].Load(); got != want || spent[i].Load() > all {
			t.Errorf("%s: %d are left, want %d", name, got, want)
		}
	}
	for what := range done {
		if done[what].Load() == 0 {
			t.Errorf("%d never happened", what)
		}
	}
}
