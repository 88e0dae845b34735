package answer_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

func limitsOf(limits ...weir.Limit) []policy.Limit {
	all := make([]policy.Limit, len(limits))
	for i, l := range limits {
		all[i].Limit = l
	}
	return all
}

// TestFieldsTellTheLimitInForce: tiers and keys have limits of their own.
func TestFieldsTellTheLimitInForce(t *testing.T) {
	plan := policy.HeaderText("X-Plan")
	p := &policy.Policy{
		Name: "p", Limits: limitsOf(weir.Limit{Rate: weir.PerSecond(10), Burst: 20}), TierBy: plan,
		Tiers: map[string][]policy.Limit{"gold": limitsOf(weir.Limit{Rate: weir.PerSecond(20), Burst: 20})},
		Keys:  map[string][]policy.Limit{"acme": limitsOf(weir.Limit{Rate: weir.PerSecond(1), Burst: 20})},
	}
	var fields answer.Fields
	for _, c := range []struct {
		plan, key, want string
		limit           int64
	}{
		{"", "other", `"p";q=20;w=2`, 20},
		{"gold", "other", `"p";q=20;w=1`, 20},
		{"silver", "other", `"p";q=20;w=2`, 20},
		{"gold", "acme", `"p";q=20;w=20`, 20},
		{"", "overridden", `"p";q=40;w=4`, 40},
	} {
		h := http.Header{}
		fields.Tell(h, &policy.Request{Header: http.Header{"X-Plan": {c.plan}}}, &policy.Verdict{
			Allowed: true, Parts: []policy.Part{{Policy: p, Key: []byte(c.key), Decision: weir.Decision{
				Allowed: true, Limit: c.limit, Remaining: 7, Policy: "p",
			}}},
		})
		if got := h.Get("Ratelimit-Policy"); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestFieldsOfOtherAlgorithms(t *testing.T) {
	for want, l := range map[string]weir.Limit{
		`"p";q=5;w=3600`:                   {Algorithm: weir.AlgorithmSlidingWindow, Rate: weir.PerHour(5)},
		`"p";q=5;qu="concurrent-requests"`: {Algorithm: weir.AlgorithmConcurrency, Burst: 5},
		`"p";q=5;w=316224000`:              {Rate: weir.Rate{Permits: 1, Period: 3660 * 24 * time.Hour}, Burst: 5},
	} {
		var (
			fields answer.Fields
			h      = http.Header{}
		)
		fields.Tell(h, &policy.Request{}, &policy.Verdict{Allowed: true, Parts: []policy.Part{{
			Policy:   &policy.Policy{Name: "p", Limits: limitsOf(l)},
			Decision: weir.Decision{Allowed: true, Limit: 5, Policy: "p"},
		}}})
		if got := h.Get("Ratelimit-Policy"); got != want {
			t.Errorf("%v: %s, want %s", l, got, want)
		}
	}
}

// TestFieldsOfManyLimits: what is kept prepared is bounded.
func TestFieldsOfManyLimits(t *testing.T) {
	var fields answer.Fields
	p := &policy.Policy{Name: "p", Limits: limitsOf(weir.Limit{Rate: weir.PerSecond(1)})}
	for limit := range int64(5000) {
		h := http.Header{}
		fields.Tell(h, &policy.Request{}, &policy.Verdict{Allowed: true, Parts: []policy.Part{{
			Policy: p, Decision: weir.Decision{Allowed: true, Limit: limit + 1, Policy: "p"},
		}}})
		if h.Get("Ratelimit-Policy") == "" {
			t.Fatalf("nothing is told of %d", limit)
		}
	}
}

// TestFieldsLeaveOutWhatWasNotAsked, unless it has refused nevertheless.
func TestFieldsLeaveOutWhatWasNotAsked(t *testing.T) {
	part := func(name string, allowed, unasked bool) policy.Part {
		return policy.Part{
			Policy:  &policy.Policy{Name: name, Limits: limitsOf(weir.Limit{Rate: weir.PerSecond(5)})},
			Unasked: unasked, Decision: weir.Decision{Allowed: allowed, Limit: 5, Policy: name},
		}
	}
	var fields answer.Fields
	h := http.Header{}
	fields.Tell(h, &policy.Request{}, &policy.Verdict{
		Binding: 1, Parts: []policy.Part{part("a", true, true), part("b", false, false), part("c", false, true), part("d", true, false)},
	})
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
		weir.ReasonLimited:     {429, httplimit.QuotaExceeded, "exceeded; retry after 5 s."},
		weir.ReasonNever:       {429, httplimit.QuotaExceeded, "no wait helps"},
		weir.ReasonHardLockout: {429, httplimit.QuotaExceeded, "too often; retry after 5 s."},
		weir.ReasonTableFull:   {503, httplimit.TemporaryReducedCapacity, "cannot be decided"},
		weir.ReasonUnavailable: {503, httplimit.TemporaryReducedCapacity, "cannot be decided"},
	} {
		p := answer.Problem(&policy.Verdict{Parts: []policy.Part{{Decision: weir.Decision{Reason: reason, Policy: "p"}}}}, 5)
		if p.Status != want.status || p.Type != want.kind || !strings.Contains(p.Detail, want.says) ||
			len(p.ViolatedPolicies) != 1 || p.RetryAfter != 5 {
			t.Errorf("%v: %+v", reason, p)
		}
		if text := string(answer.JSON(p)); strings.ContainsAny(text, "\r\n") || !strings.HasPrefix(text, `{"type":`) {
			t.Errorf("%s", text)
		}
	}
}
