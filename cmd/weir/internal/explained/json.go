package explained

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/policy"
)

// JSON is an explanation with all durations in seconds: -1 stands for never.
type JSON struct {
	Allowed    bool                   `json:"allowed"`
	Exempt     bool                   `json:"exempt"`
	Reason     weir.Reason            `json:"reason"`
	RetryAfter float64                `json:"retry_after"`
	Binding    *int                   `json:"binding"`
	Denied     string                 `json:"denied,omitempty"`
	Paths      []string               `json:"paths,omitempty"`
	Rules      []policy.ExplainedRule `json:"rules"`
	Limits     []Limit                `json:"limits"`
}

// Limit is a limit as seen by one request: see [policy.ExplainedLimit].
type Limit struct {
	Policy     string      `json:"policy"`
	Limit      string      `json:"limit"`
	Rule       string      `json:"rule"`
	Tier       string      `json:"tier,omitempty"`
	Role       string      `json:"role"`
	Holds      string      `json:"holds"`
	Key        string      `json:"key"` // as the admin API spells it
	KeyFrom    string      `json:"key_from,omitempty"`
	Cost       int64       `json:"cost"`
	Failure    string      `json:"failure,omitempty"`
	Before     int64       `json:"before"`
	After      int64       `json:"after"`
	Allowed    bool        `json:"allowed"`
	Reason     weir.Reason `json:"reason"`
	RetryAfter float64     `json:"retry_after"`
	ResetAfter float64     `json:"reset_after"`
	Would      string      `json:"would"`
}

// Of returns the form of e for JSON.
func Of(e *policy.Explanation) *JSON {
	j := &JSON{
		Allowed: e.Allowed, Exempt: e.Exempt, Reason: e.Reason, RetryAfter: seconds(e.RetryAfter),
		Denied: e.Denied, Paths: e.Paths, Rules: e.Rules, Limits: []Limit{},
	}
	if j.Rules == nil {
		j.Rules = []policy.ExplainedRule{}
	}
	if e.Binding >= 0 {
		j.Binding = &e.Binding
	}
	for i := range e.Limits {
		l := &e.Limits[i]
		j.Limits = append(j.Limits, Limit{
			l.Policy, l.Limit, l.Rule, l.Tier, l.Role, l.Holds, admin.SpellKey(l.Key), l.KeyFrom, l.Cost, l.Failure,
			l.Before, l.After,
			l.Decision.Allowed, l.Decision.Reason, seconds(l.Decision.RetryAfter), seconds(l.Decision.ResetAfter), l.Would,
		})
	}
	return j
}

func seconds(d time.Duration) float64 {
	if d == weir.Never {
		return -1
	}
	return d.Seconds()
}
