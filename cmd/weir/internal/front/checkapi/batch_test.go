package checkapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// batched is the answer to a batch.
type batched struct {
	Allowed, Atomic bool
	Results         []struct {
		Allowed    bool
		Reason     string
		Policy     *string
		Limit      *int64
		Remaining  *int64
		RetryAfter *float64 `json:"retry_after"`
		Exempt     bool
		Binding    *int
		Decisions  []struct {
			Policy, Rule, Key string
			Remaining, Cost   int64
		}
	}
}

func batch(t testing.TB, h http.Handler, body string) (*httptest.ResponseRecorder, batched) {
	t.Helper()
	r := send(h, "POST", "/v1/batch", "application/json", body)
	var answer batched
	if err := unmarshal(r.Body.String(), &answer); err != nil {
		t.Fatal(err)
	}
	return r, answer
}

// remaining is what a probe finds left.
func remaining(t testing.TB, h http.Handler, name, key string) int64 {
	t.Helper()
	var d struct{ Remaining int64 }
	body, err := json.Marshal(map[string]any{"policy": name, "key": key, "cost": 0})
	if err != nil {
		t.Fatal(err)
	}
	if err := unmarshal(check(h, string(body)).Body.String(), &d); err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

const several = `version: 1
policies:
  default: {limit: 10/h, burst: 10, key: client.ip}
  large: {limit: 100/h, burst: 100, key: client.ip}
  two:
    limits: [{name: a, rate: 20/h, burst: 20}, {name: b, rate: 5/h, burst: 5}]
    key: client.ip
  watched: {limit: 1/h, burst: 1, mode: shadow, key: client.ip}
rules:
  - {name: free, match: {path: /free}, exempt: true}
  - {name: two, match: {path: /two}, limits: [two, large]}
  - {name: watched, match: {path: /watched}, limits: watched}
`

// TestBatchOneByOne: each check is decided on by itself, in its order, and what is allowed is charged whatever the others are.
func TestBatchOneByOne(t *testing.T) {
	h, _ := newConfigured(t, several, policy.EngineOptions{Clock: manualclock.New(0)})
	r, a := batch(t, h, `{"checks":[{"key":"x","cost":7},{"key":"x","cost":7},{"key":"x","cost":3},{"key":"x","cost":0},
		{"request":{"path":"/two","client":"192.0.2.1","cost":2}},{"request":{"path":"/free"}},{"request":{"path":"/none"}},
		{"policy":"watched","key":"x","cost":9},{"key":"y","cost":11},{"request":{"path":"/two","client":"192.0.2.1","cost":0}}]}`)
	if r.Code != 429 || a.Allowed || a.Atomic || len(a.Results) != 10 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	var allowed []byte
	for _, one := range a.Results {
		if one.Allowed {
			allowed = append(allowed, '+')
		} else {
			allowed = append(allowed, '-')
		}
	}
	if string(allowed) != "+-+-++++-+" {
		t.Errorf("%s: %s", allowed, r.Body)
	}
	two := a.Results[4]
	if len(two.Decisions) != 3 || *two.Policy != "two/b" || *two.Binding != 1 || two.Decisions[1].Rule != "two" ||
		two.Decisions[2].Policy != "large" || two.Decisions[2].Remaining != 98 || two.Decisions[2].Key != "192.0.2.1" {
		t.Errorf("%+v", two)
	}
	if free := a.Results[5]; !free.Exempt || free.Policy != nil || free.Limit != nil || free.Binding != nil {
		t.Errorf("%+v", free)
	}
	if watched := a.Results[7]; *watched.Policy != "watched" || watched.Limit != nil {
		t.Errorf("%+v", watched)
	}
	if *a.Results[9].Remaining != 3 {
		t.Errorf("%+v", a.Results[9])
	}
	// The header fields are those of the decision that binds: the check that never can pass.
	if got := r.Header(); got.Get("Retry-After") != "" || !strings.HasPrefix(got.Get("Ratelimit"), `"default";r=10`) ||
		a.Results[8].Reason != "never" || a.Results[8].RetryAfter != nil {
		t.Errorf("%v, %+v", got, a.Results[8])
	}
	if n := remaining(t, h, "default", "x"); n != 0 {
		t.Errorf("%d are left", n)
	}
	if r, a := batch(t, h, `{"checks":[{"key":"z"},{"policy":"large","key":"z","cost":99},{"key":"z"}]}`); r.Code != 200 || !a.Allowed ||
		!strings.HasPrefix(r.Header().Get("Ratelimit"), `"large";r=1`) {
		t.Errorf("%d %s %v", r.Code, r.Body, r.Header())
	}
}

// TestBatchAtomic: all are charged or none is, and what several take of one key is counted together.
func TestBatchAtomic(t *testing.T) {
	h, _ := newConfigured(t, several, policy.EngineOptions{Clock: manualclock.New(0)})
	left := func(x, large, two int64) {
		t.Helper()
		for name, want := range map[string]int64{"default": x, "large": large, "two": two} {
			if got := remaining(t, h, name, "192.0.2.1"); got != want {
				t.Errorf("%d of %s are left, want %d", got, name, want)
			}
		}
	}
	r, a := batch(t, h, `{"atomic":true,"checks":[{"key":"192.0.2.1","cost":4},{"key":"192.0.2.1","cost":3},
		{"request":{"path":"/two","client":"192.0.2.1","cost":2}},{"request":{"path":"/free"}},{"request":{"path":"/none"}},
		{"policy":"watched","key":"x","cost":9},{"policy":"large","key":"192.0.2.1","cost":0}]}`)
	if r.Code != 200 || !a.Allowed || !a.Atomic || len(a.Results) != 7 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	left(3, 98, 3)
	for i, want := range []string{"default", "default", "two/b", "", "", "watched", "large"} {
		got := a.Results[i]
		if !got.Allowed || (got.Policy == nil) != (want == "") || got.Policy != nil && *got.Policy != want {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if two := a.Results[2]; len(two.Decisions) != 3 || *two.Binding != 1 {
		t.Errorf("%+v", two)
	}
	if !a.Results[3].Exempt || a.Results[4].Exempt {
		t.Errorf("%s", r.Body)
	}
	if got := r.Header().Get("Ratelimit"); !strings.HasPrefix(got, `"default";r=3`) && !strings.HasPrefix(got, `"two/b";r=3`) {
		t.Errorf("%s", got)
	}

	r, a = batch(t, h, `{"atomic":true,"checks":[{"policy":"large","key":"192.0.2.1","cost":50},{"request":{"path":"/free"}},
		{"key":"192.0.2.1","cost":2},{"key":"192.0.2.1","cost":2}]}`)
	if r.Code != 429 || a.Allowed || len(a.Results) != 4 || !a.Results[0].Allowed || !a.Results[1].Exempt || a.Results[3].Allowed {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if got := r.Header(); got.Get("Retry-After") == "" || !strings.HasPrefix(got.Get("Ratelimit-Policy"), `"default";q=10`) {
		t.Errorf("%v", got)
	}
	left(3, 98, 3)

	// Probes alone take nothing.
	if r, a = batch(t, h, `{"atomic":true,"checks":[{"key":"192.0.2.1","cost":0},{"request":{"path":"/two","client":"192.0.2.1","cost":0}}]}`); r.Code != 200 || !a.Allowed {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	left(3, 98, 3)
}

func TestBatchLimits(t *testing.T) {
	h, _ := newConfigured(t, several, policy.EngineOptions{Clock: manualclock.New(0)})
	many := func(n int, one, more string) string {
		return `{"checks":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]` + more + `}`
	}
	if r, a := batch(t, h, many(1000, `{"key":"a","cost":0}`, "")); r.Code != 200 || len(a.Results) != 1000 {
		t.Errorf("%d", r.Code)
	}
	if r, a := batch(t, h, many(64, `{"policy":"large","key":"a"}`, `,"atomic":true`)); r.Code != 200 || len(a.Results) != 64 || *a.Results[0].Remaining != 36 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	keys := make([]string, 33)
	for i := range keys {
		keys[i] = fmt.Sprintf(`{"policy":"two","key":"%d"}`, i)
	}
	different := `{"atomic":true,"checks":[` + strings.Join(keys, ",") + `]}`
	for body, want := range map[string]string{
		many(1001, `{"key":"a"}`, ""):                                  "checks: has more than 1000 objects; must be an array of 1 to 1000 objects",
		many(65, `{"key":"a"}`, `,"atomic":true`):                      "checks: has 65 objects; must be an array of 1 to 1000 objects, or to 64",
		many(0, "", ""):                                                "checks: is empty",
		`{}`:                                                           "checks: is missing",
		`{"atomic":true}`:                                              "checks: is missing",
		`{"checks":{}}`:                                                "checks an object: must be an array",
		`{"checks":[7]}`:                                               "checks[0] 7: must be an object with policy, key, cost and charge, or with request",
		`{"checks":[{"key":"a"},{"cost":1}]}`:                          "checks[1].key: is missing",
		`{"checks":[{"key":""}]}`:                                      `checks[0].key "": must be a string that is not empty`,
		`{"checks":[{"key":"a","wait":1}]}`:                            `field "wait": in checks[0]; must be policy, key, cost and charge, or request`,
		`{"checks":[{"request":{"pth":"/"}}]}`:                         `field "pth": in checks[0].request; must be protocol, method`,
		`{"checks":[{"request":{"path":"x"}}]}`:                        `checks[0].request.path "x": must be the target of a request`,
		`{"checks":[{"request":7}]}`:                                   "checks[0].request 7: must be an object that describes a request",
		`{"checks":[{"request":{},"key":"a"}]}`:                        "checks[0].request: stands beside policy, key, cost, charge or wait; must be there in their place",
		`{"checks":[{"request":{"wait":1}}]}`:                          "checks[0].request.wait: must be 0 or not there, as a batch does not wait",
		`{"checks":[{"key":"a"}],"atomic":1}`:                          "atomic 1: must be true or false",
		`{"checks":[{"key":"a"}],"atomic":"true"}`:                     `atomic "true": must be true or false`,
		`{"checks":[{"key":"a"}],"atomic":trueish}`:                    `atomic trueish: must be true or false`,
		`{"checks":[{"key":"a"}],"checks":[]}`:                         "checks: stands there twice",
		`{"checks":[{"key":"a"}],"all":true}`:                          `field "all": must be checks or atomic`,
		`{"checks":[{"key":"a"} {"key":"b"}]}`:                         "not JSON: expected , or ]",
		`{"checks":[{"key":"a"}]}x`:                                    "expected nothing after the object",
		`{"checks":[{"key":"a"}`:                                       "not JSON: expected , or ]",
		`{"checks":[{"key":"a",}]}`:                                    "checks[0]: not JSON: expected a string in quotes",
		`[]`:                                                           "must be a JSON object",
		`{"checks":[{"policy":"none","key":"a"}]}`:                     `checks[0].policy "none": there is no such policy; must be one of: default, large, two, watched`,
		many(30, `{"policy":"two","key":"a"}`, `,"atomic":true`) + " ": "", // 60 limits
		different: "checks: more limits apply to them than can be decided on at once",
		`{"atomic":true,"checks":[{"key":"a"},{"request":{"cost":0}}]}`: `checks[1].request.cost 0: other checks of the batch take something`,
	} {
		r := send(h, "POST", "/v1/batch", "application/json", body)
		if want == "" {
			if r.Code != 200 && r.Code != 429 {
				t.Errorf("%.60s: %d %s", body, r.Code, r.Body)
			}
			continue
		}
		var p struct{ Detail string }
		if err := unmarshal(r.Body.String(), &p); err != nil || !strings.Contains(p.Detail, want) || r.Code != 400 && r.Code != 404 {
			t.Errorf("%.60s: %d %s, want %s", body, r.Code, p.Detail, want)
		}
	}
	if n := remaining(t, h, "default", "a"); n != 10 {
		t.Errorf("%d are left", n)
	}
}

// BenchmarkBatch is a batch of a hundred checks.
func BenchmarkBatch(b *testing.B) {
	for _, atomic := range []int{64, 0} {
		b.Run(fmt.Sprintf("atomic=%t", atomic > 0), func(b *testing.B) {
			h, _ := newFront(b)
			n, more := 100, ""
			if atomic > 0 {
				n, more = atomic, `,"atomic":true`
			}
			body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"policy":"default","key":"alice"},`, n), ",") + `]` + more + `}`
			for b.Loop() {
				send(h, "POST", "/v1/batch", "application/json", body)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/check")
		})
	}
}
