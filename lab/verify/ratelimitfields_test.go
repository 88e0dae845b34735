//go:build !race

package verify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/ratelimitfields"
)

// TestRateLimitFieldsAreStructuredFields has a parser of RFC 9651 read what ratelimitfields writes from random policies and
// states, and compares every item and parameter with what went in.
func TestRateLimitFieldsAreStructuredFields(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refusedNames := 0
	for range 20_000 {
		policies := make([]ratelimitfields.Policy, 1+random.IntN(4))
		for i := range policies {
			policies[i] = randomPolicy(random, i)
		}
		prepared, err := ratelimitfields.NewPolicies(policies...)
		if err != nil {
			if isWritable(policies) {
				t.Fatalf("%+v is refused: %v", policies, err)
			}
			refusedNames++
			continue
		}
		if !isWritable(policies) {
			t.Fatalf("%+v is accepted", policies)
		}
		states := randomStates(random, len(policies))
		h := http.Header{}
		var headers ratelimitfields.Headers
		if random.IntN(2) == 0 {
			headers.SetAdmitted(h, prepared, states...)
		} else {
			headers.SetRefused(h, prepared, time.Duration(random.Int64N(1<<random.IntN(62)+1)), states...)
		}
		checkPolicyField(t, h.Values("Ratelimit-Policy"), policies, states)
		checkLimitField(t, h, policies, states)
		if t.Failed() {
			t.Fatalf("policies %+v, states %+v, header %q", policies, states, h)
		}
	}
	if refusedNames < 1000 {
		t.Errorf("only %d inputs had a name that cannot be written: the test does not test", refusedNames)
	}
}

// TestSeveralMiddlewaresMakeOneList has the parser read the fields that two limits, one after the other, have written.
func TestSeveralMiddlewaresMakeOneList(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{`a "b"`, `c\`} {
		p := must(ratelimitfields.NewPolicies(ratelimitfields.Policy{Name: name, Quota: 1}))
		new(ratelimitfields.Headers).SetAdmitted(h, p, ratelimitfields.State{Remaining: 1})
	}
	for _, field := range []string{"Ratelimit", "Ratelimit-Policy"} {
		list, err := httpsfv.UnmarshalList(h.Values(field))
		if err != nil || len(list) != 2 || item(t, list[0]).Value != `a "b"` || item(t, list[1]).Value != `c\` {
			t.Errorf("%s: %q, %v, %v", field, h.Values(field), list, err)
		}
	}
}

func checkPolicyField(t *testing.T, values []string, policies []ratelimitfields.Policy, states []ratelimitfields.State) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(values)
	if err != nil || len(list) != len(policies) {
		t.Fatalf("RateLimit-Policy %q: %v", values, err)
	}
	for i, p := range policies {
		want := map[string]any{"q": min(p.Quota, 999_999_999_999_999)}
		if p.Window >= time.Second {
			want["w"] = seconds(p.Window)
		}
		if p.Unit != "" && p.Unit != ratelimitfields.Requests {
			want["qu"] = string(p.Unit)
		}
		addKey(want, p.PartitionKey)
		addKey(want, keyOf(states, i))
		checkItem(t, list[i], p.Name, want)
	}
}

func checkLimitField(t *testing.T, h http.Header, policies []ratelimitfields.Policy, states []ratelimitfields.State) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values("Ratelimit"))
	if err != nil || len(list) != len(states) {
		t.Fatalf("RateLimit %q: %v", h.Values("Ratelimit"), err)
	}
	var retry int64
	if value := h.Get("Retry-After"); value != "" {
		parsed, err := httpsfv.UnmarshalItem([]string{value})
		if err != nil {
			t.Fatalf("Retry-After %q: %v", value, err)
		}
		if retry = integer(parsed.Value); retry < 1 {
			t.Errorf("Retry-After: %d", retry)
		}
	}
	for i, s := range states {
		p := policies[s.Policy]
		want := map[string]any{"r": min(max(s.Remaining, 0), 999_999_999_999_999)}
		window := seconds(max(s.Reset, 0))
		switch {
		case retry > 0 && i == 0:
			window = retry
		case retry > 0:
			window = min(window, retry)
		}
		if window > 0 {
			want["t"] = window
		}
		addKey(want, p.PartitionKey)
		addKey(want, keyOf(states, s.Policy))
		checkItem(t, list[i], p.Name, want)
	}
}

func item(t *testing.T, m httpsfv.Member) httpsfv.Item {
	t.Helper()
	i, ok := m.(httpsfv.Item)
	if !ok {
		t.Fatalf("%v is no item", m)
	}
	return i
}

func checkItem(t *testing.T, m httpsfv.Member, name string, want map[string]any) {
	t.Helper()
	got := item(t, m)
	if name == "" {
		name = "default"
	}
	if got.Value != name {
		t.Errorf("the item is %v, want %q", got.Value, name)
	}
	if names := got.Params.Names(); len(names) != len(want) {
		t.Errorf("the parameters are %v, want %v", names, want)
	}
	for name, value := range want {
		if v, _ := got.Params.Get(name); fmt.Sprint(v) != fmt.Sprint(value) {
			t.Errorf("%s is %v, want %v", name, v, value)
		}
	}
}

func integer(v any) int64 {
	n, ok := v.(int64)
	if !ok {
		return -1
	}
	return n
}

// keyOf is the first partition key of a policy among states.
func keyOf(states []ratelimitfields.State, policy int) []byte {
	for _, s := range states {
		if s.Policy == policy && s.PartitionKey != nil {
			return s.PartitionKey
		}
	}
	return nil
}

func addKey(want map[string]any, key []byte) {
	if key != nil {
		want["pk"] = key
	}
}

func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

func isWritable(policies []ratelimitfields.Policy) bool {
	for _, p := range policies {
		for _, s := range []string{p.Name, string(p.Unit)} {
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
				return false
			}
		}
	}
	return true
}

var units = []ratelimitfields.Unit{"", ratelimitfields.Requests, ratelimitfields.ContentBytes, ratelimitfields.ConcurrentRequests, `odd"\`}

func randomPolicy(random *rand.Rand, i int) ratelimitfields.Policy {
	return ratelimitfields.Policy{
		Name:         randomText(random) + fmt.Sprint(i),
		Quota:        random.Int64N(math.MaxInt64 >> random.IntN(62)),
		Window:       time.Duration(random.Int64N(math.MaxInt64 >> random.IntN(62))),
		Unit:         units[random.IntN(len(units))],
		PartitionKey: randomKey(random),
	}
}

func randomStates(random *rand.Rand, policies int) []ratelimitfields.State {
	states := make([]ratelimitfields.State, 1+random.IntN(4))
	for i := range states {
		states[i] = ratelimitfields.State{
			Policy:       random.IntN(policies),
			Remaining:    random.Int64N(math.MaxInt64>>random.IntN(62)) - 3,
			Reset:        time.Duration(random.Int64N(math.MaxInt64>>random.IntN(62))) - 3,
			PartitionKey: randomKey(random),
		}
	}
	return states
}

// randomText is mostly text that can be written, with what needs an escape, and now and then something else.
func randomText(random *rand.Rand) string {
	b := make([]byte, random.IntN(20))
	for i := range b {
		switch n := random.IntN(100); {
		case n < 20:
			b[i] = `"\;,=: `[random.IntN(7)]
		case n == 20:
			b[i] = byte(random.IntN(256))
		default:
			b[i] = byte(' ' + random.IntN('~'-' '+1))
		}
	}
	return string(b)
}

func randomKey(random *rand.Rand) []byte {
	if random.IntN(2) == 0 {
		return nil
	}
	b := make([]byte, random.IntN(30))
	for i := range b {
		b[i] = byte(random.IntN(256))
	}
	return b
}

// TestDecisionsOfRealLimitersAreStructuredFields drives a middleware with real limiters at random costs and times.
func TestDecisionsOfRealLimitersAreStructuredFields(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	clock := manualclock.New(0)
	rate := weir.Per(7, 3*time.Second)
	bucket := must(weir.New(weir.TokenBucket(rate, 9), weir.Options{Name: "bucket", Clock: clock}))
	fixed := must(weir.New(weir.FixedWindow(weir.Per(9, 90*time.Second)), weir.Options{Name: "fixed", Clock: clock}))
	sliding := must(weir.New(weir.SlidingWindow(weir.PerMinute(9), 0), weir.Options{
		Name: "sliding", Clock: clock,
	}))
	all := must(weir.NewChain(bucket, fixed, sliding))
	for _, limiter := range []weir.Acquirer{bucket, fixed, sliding, all} {
		limit := must(httplimit.New(httplimit.Options{
			Limiter: limiter, Cost: func(r *http.Request) int64 { return r.ContentLength },
		}))
		answer := &header{http.Header{}, 0}
		handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		refused := 0
		for range 2000 {
			clock.Advance(time.Duration(random.Int64N(int64(4 * time.Second))))
			clear(answer.values)
			answer.status = http.StatusOK
			r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
			r.ContentLength = random.Int64N(12)
			handler.ServeHTTP(answer, r)
			list, err := httpsfv.UnmarshalList(answer.values["Ratelimit"])
			if err != nil || len(list) != 1 {
				t.Fatalf("%v: %v", answer.values, err)
			}
			window, _ := item(t, list[0]).Params.Get("t")
			if answer.status != http.StatusTooManyRequests {
				continue
			}
			refused++
			switch retry := answer.values.Get("Retry-After"); {
			case r.ContentLength > 9:
				if retry != "" {
					t.Fatalf("cost %d: Retry-After %s for what can never be", r.ContentLength, retry)
				}
			case retry != fmt.Sprint(window):
				t.Fatalf("t is %v, Retry-After %s", window, retry)
			default:
				// Coming back after Retry-After is never too early.
				clock.Advance(time.Duration(integer(window)) * time.Second)
				if d := limiter.Peek(r.ContentLength); !d.Allowed {
					t.Fatalf("cost %d: %+v after Retry-After: %s", r.ContentLength, d, retry)
				}
			}
		}
		if refused < 100 {
			t.Errorf("only %d requests were refused: the test does not test", refused)
		}
	}
}

// header is a response of which nothing but the header and the status is kept.
type header struct {
	values http.Header
	status int
}

func (h *header) Header() http.Header         { return h.values }
func (h *header) WriteHeader(status int)      { h.status = status }
func (h *header) Write(p []byte) (int, error) { return len(p), nil }
