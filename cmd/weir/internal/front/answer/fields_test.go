package answer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

func limitsOf(limits ...weir.Limit) []policy.Limit {
	all := make([]policy.Limit, len(limits))
	for i, l := range limits {
		all[i].Limit = l
	}
	return all
}

// TestToldLimitIsTheOneApplied: an HTTP gate and all other fronts tell the limit that the engine applied to the key, with its window:
// that of the policy, a tier, a key, an override, or what the request has brought.
func TestToldLimitIsTheOneApplied(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	calendar := func(u algo.CalendarUnit, zone *time.Location) weir.Limit {
		return weir.CalendarWindow(20, algo.Calendar{Unit: u, Zone: zone})
	}
	usual := weir.TokenBucket(weir.PerSecond(10), 20)
	for name, c := range map[string]struct {
		limit, tier, key, override, brought weir.Limit
		want                                string
	}{
		"policy":                  {limit: usual, want: `q=20;w=2`},
		"another burst":           {limit: weir.TokenBucket(weir.PerSecond(10), 25), want: `q=25;w=3`},
		"override, same burst":    {limit: usual, override: weir.TokenBucket(weir.PerMinute(20), 20), want: `q=20;w=60`},
		"override, another burst": {limit: usual, override: weir.TokenBucket(weir.PerMinute(40), 40), want: `q=40;w=60`},
		"tier, same burst":        {limit: usual, tier: weir.TokenBucket(weir.PerHour(20), 20), want: `q=20;w=3600`},
		"tier, another burst":     {limit: usual, tier: weir.TokenBucket(weir.PerHour(50), 50), want: `q=50;w=3600`},
		"key":                     {limit: usual, tier: weir.TokenBucket(weir.PerHour(50), 0), key: weir.TokenBucket(weir.PerMinute(20), 20), want: `q=20;w=60`},
		"override of a key":       {limit: usual, key: weir.TokenBucket(weir.PerMinute(20), 0), override: weir.TokenBucket(weir.PerHour(20), 20), want: `q=20;w=3600`},
		"brought":                 {limit: usual, brought: weir.TokenBucket(weir.PerHour(20), 20), want: `q=20;w=3600`},
		"override of brought":     {limit: usual, brought: weir.TokenBucket(weir.PerHour(20), 0), override: weir.TokenBucket(weir.PerMinute(20), 20), want: `q=20;w=60`},
		"fixed window":            {limit: weir.FixedWindow(weir.PerHour(20)), want: `q=20;w=3600`},
		"sliding window":          {limit: weir.SlidingWindow(weir.PerMinute(20), 0), want: `q=20;w=60`},
		"sliding counter, tier": {
			limit: weir.SlidingCounter(weir.PerMinute(20)),
			tier:  weir.SlidingCounter(weir.PerHour(20)), want: `q=20;w=3600`,
		},
		"concurrency":   {limit: weir.AtOnce(20), want: `q=20;qu="concurrent-requests"`},
		"day":           {limit: calendar(algo.CalendarDay, nil), want: `q=20;w=86400`},
		"week":          {limit: calendar(algo.CalendarWeek, time.UTC), want: `q=20;w=604800`},
		"day in a zone": {limit: calendar(algo.CalendarDay, vienna), want: `q=20`},
		"month":         {limit: calendar(algo.CalendarMonth, nil), want: `q=20`},
		"month in a zone": {
			limit: calendar(algo.CalendarMonth, vienna), want: `q=20`,
		},
		"override of a month": {
			limit: calendar(algo.CalendarMonth, nil), override: calendar(algo.CalendarDay, nil), want: `q=20;w=86400`,
		},
		"slow": {limit: weir.TokenBucket(weir.Rate{Permits: 1, Period: 3660 * 24 * time.Hour}, 5), want: `q=5;w=1581120000`},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", shared ", shared), func(t *testing.T) {
				p := policy.Policy{Name: "p", Key: policy.HeaderText("X-Key"), Limits: limitsOf(c.limit)}
				if c.tier != (weir.Limit{}) {
					p.TierBy, p.Tiers = policy.HeaderText("X-Plan"), map[string][]policy.Limit{"gold": limitsOf(c.tier)}
				}
				if c.key != (weir.Limit{}) {
					p.Keys = map[string][]policy.Limit{"k": limitsOf(c.key)}
				}
				if c.brought != (weir.Limit{}) {
					p.LimitBy = brings{c.brought}
				}
				o := policy.EngineOptions{}
				if shared {
					memory, err := store.NewMemory(store.MemoryOptions{})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = memory.Close() })
					p.Consistency, o.Store = policy.ConsistencyCoherent, memory
				}
				e, err := policy.NewEngine(&policy.Set{
					Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "p"}}}},
				}, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = e.Close() })
				if c.override != (weir.Limit{}) {
					if err := e.Override(&policy.Override{Policy: "p", Key: "k", Limits: limitsOf(c.override), For: time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
				for front, told := range toldBy(t, e) {
					if got, want := told(http.Header{"X-Plan": {"gold"}, "X-Key": {"k"}}), `"p";`+c.want; got != want {
						t.Errorf("%s: %s, want %s", front, got, want)
					}
				}
			})
		}
	}
}

type brings struct{ limit weir.Limit }

func (b brings) Limit(*policy.Request) (weir.Limit, bool, error) { return b.limit, true, nil }
func (brings) String() string                                    { return "brings" }

// toldBy are the fronts, each of which sends a request and returns the RateLimit-Policy of the reply.
func toldBy(t *testing.T, e *policy.Engine) map[string]func(http.Header) string {
	t.Helper()
	g, err := httplimit.NewGate(httplimit.GateOptions{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(http.NotFoundHandler())
	var (
		fields answer.Fields
		last   answer.Last
	)
	return map[string]func(http.Header) string{
		"gate": func(header http.Header) string {
			r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
			r.Header = header
			h.ServeHTTP(w, r)
			return w.Header().Get("Ratelimit-Policy")
		},
		"fields": func(header http.Header) string {
			var v policy.Verdict
			e.Take(&policy.Request{Header: header, Context: t.Context()}, &v)
			v.Release()
			told := http.Header{}
			fields.Tell(told, &v, &last)
			return told.Get("Ratelimit-Policy")
		},
	}
}

func TestFieldsOfOtherAlgorithms(t *testing.T) {
	for want, l := range map[string]weir.Limit{
		`"p";q=5;w=3600`:                   weir.SlidingWindow(weir.PerHour(5), 0),
		`"p";q=5;qu="concurrent-requests"`: weir.AtOnce(5),
		`"p";q=5;w=1581120000`:             weir.TokenBucket(weir.Rate{Permits: 1, Period: 3660 * 24 * time.Hour}, 5),
	} {
		var (
			fields answer.Fields
			last   answer.Last
			h      = http.Header{}
		)
		fields.Tell(h, &policy.Verdict{Allowed: true, Parts: []policy.Part{{
			Policy:   &policy.Policy{Name: "p", Limits: limitsOf(l)},
			Decision: weir.Decision{Allowed: true, Limit: 5, Policy: "p"},
		}}}, &last)
		if got := h.Get("Ratelimit-Policy"); got != want {
			t.Errorf("%v: %s, want %s", l, got, want)
		}
	}
}

// TestFieldsOfManyLimits: what is kept prepared is bounded.
func TestFieldsOfManyLimits(t *testing.T) {
	var (
		fields answer.Fields
		last   answer.Last
	)
	p := &policy.Policy{Name: "p", Limits: limitsOf(weir.TokenBucket(weir.PerSecond(1), 0))}
	for limit := range int64(5000) {
		h := http.Header{}
		fields.Tell(h, &policy.Verdict{Allowed: true, Parts: []policy.Part{{
			Policy: p, Decision: weir.Decision{Allowed: true, Limit: limit + 1, Policy: "p"},
		}}}, &last)
		if h.Get("Ratelimit-Policy") == "" {
			t.Fatalf("nothing is told of %d", limit)
		}
	}
}

// TestFieldsLeaveOutWhatWasNotAsked, unless it has refused nevertheless.
func TestFieldsLeaveOutWhatWasNotAsked(t *testing.T) {
	part := func(name string, allowed, unasked bool) policy.Part {
		return policy.Part{
			Policy:  &policy.Policy{Name: name, Limits: limitsOf(weir.TokenBucket(weir.PerSecond(5), 0))},
			Unasked: unasked, Decision: weir.Decision{Allowed: allowed, Limit: 5, Policy: name},
		}
	}
	var (
		fields answer.Fields
		last   answer.Last
	)
	h := http.Header{}
	fields.Tell(h, &policy.Verdict{
		Binding: 1, Parts: []policy.Part{part("a", true, true), part("b", false, false), part("c", false, true), part("d", true, false)},
	}, &last)
	if got, want := h.Get("Ratelimit-Policy"), `"b";q=5;w=1, "c";q=5;w=1, "d";q=5;w=1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestProblem(t *testing.T) {
	for reason, want := range map[weir.Reason]struct {
		status int
		kind   string
		says   string
	}{
		weir.ReasonLimited:     {429, httplimit.QuotaExceeded, "The limit of 1000 per month, UTC is exceeded; retry after 8 days 6 hours ("},
		weir.ReasonNever:       {429, httplimit.QuotaExceeded, "The request costs more than the limit of 1000 per month, UTC grants at once; no wait helps."},
		weir.ReasonInvalid:     {429, httplimit.QuotaExceeded, "No limit can be asked about the request: it leads to more than 64 keys, or costs what no request can cost."},
		weir.ReasonHardLockout: {429, httplimit.QuotaExceeded, "The limit of 1000 per month, UTC was exceeded too often; retry after 8 days 6 hours ("},
		weir.ReasonTableFull:   {503, httplimit.TemporaryReducedCapacity, "cannot be decided"},
		weir.ReasonUnavailable: {503, httplimit.TemporaryReducedCapacity, "cannot be decided"},
	} {
		month := policy.Policy{Name: "p", Limits: []policy.Limit{{Limit: weir.CalendarWindow(1000, algo.Calendar{Unit: algo.CalendarMonth})}}}
		const seconds = 8*86400 + 6*3600
		p := answer.OfRefusal(&policy.Verdict{Parts: []policy.Part{{
			Policy: &month, Decision: weir.Decision{Reason: reason, Policy: "p"},
		}}}, seconds, true)
		quiet := answer.OfRefusal(&policy.Verdict{Parts: []policy.Part{{
			Policy: &month, Decision: weir.Decision{Reason: reason, Policy: "p"},
		}}}, seconds, false)
		if len(quiet.ViolatedPolicies) > 0 || strings.Contains(quiet.Detail, "1000") {
			t.Errorf("%v: a limit is told: %+v", reason, quiet)
		}
		if p.Status != want.status || p.Type != want.kind || !strings.Contains(p.Detail, want.says) ||
			len(p.ViolatedPolicies) != 1 || p.RetryAfter != seconds {
			t.Errorf("%v: %+v", reason, p)
		}
		if text := string(answer.JSON(p)); strings.ContainsAny(text, "\r\n") || !strings.HasPrefix(text, `{"type":`) {
			t.Errorf("%s", text)
		}
	}
}
