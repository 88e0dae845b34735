package operator

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// Described is a request to be explained. All but the path may be missing.
type Described struct {
	Protocol   string              `json:"protocol,omitempty"`
	Method     string              `json:"method,omitempty"`
	Host       string              `json:"host,omitempty"`
	Path       string              `json:"path"`
	Query      string              `json:"query,omitempty"`
	Route      string              `json:"route,omitempty"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Client     string              `json:"client,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"`
	// Cost is the number of permits where the configuration does not say so. Default: 1.
	Cost int64 `json:"cost,omitempty"`
}

// ExplanationJSON is an explanation with all durations in seconds: -1 stands for never.
type ExplanationJSON struct {
	Allowed    bool                   `json:"allowed"`
	Exempt     bool                   `json:"exempt"`
	Reason     weir.Reason            `json:"reason"`
	RetryAfter float64                `json:"retry_after"`
	Binding    *int                   `json:"binding"`
	Denied     string                 `json:"denied,omitempty"`
	Paths      []string               `json:"paths,omitempty"`
	Rules      []policy.ExplainedRule `json:"rules"`
	Limits     []ExplainedLimitJSON   `json:"limits"`
}

// ExplainedLimitJSON is a limit as seen by one request: see [policy.ExplainedLimit].
type ExplainedLimitJSON struct {
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

// ExplanationOf returns the form of e for JSON.
func ExplanationOf(e *policy.Explanation) *ExplanationJSON {
	j := &ExplanationJSON{
		Allowed: e.Allowed, Exempt: e.Exempt, Reason: e.Reason, RetryAfter: SecondsOf(e.RetryAfter),
		Denied: e.Denied, Paths: e.Paths, Rules: e.Rules, Limits: []ExplainedLimitJSON{},
	}
	if j.Rules == nil {
		j.Rules = []policy.ExplainedRule{}
	}
	if e.Binding >= 0 {
		j.Binding = &e.Binding
	}
	for i := range e.Limits {
		l := &e.Limits[i]
		j.Limits = append(j.Limits, ExplainedLimitJSON{
			l.Policy, l.Limit, l.Rule, l.Tier, l.Role, l.Holds, SpellKey(l.Key), l.KeyFrom, l.Cost, l.Failure,
			l.Before, l.After,
			l.Decision.Allowed, l.Decision.Reason, SecondsOf(l.Decision.RetryAfter), SecondsOf(l.Decision.ResetAfter), l.Would,
		})
	}
	return j
}

// SecondsOf is a duration as the API tells it: -1 for never.
func SecondsOf(d time.Duration) float64 {
	if d == weir.Never {
		return -1
	}
	return d.Seconds()
}
