package operator

import (
	"encoding/json"
	"time"
)

// Quota is what is left of a quota.
type Quota struct {
	Policy string       `json:"policy"`
	Key    string       `json:"key"`
	Limits []QuotaLimit `json:"limits"`
}

// QuotaLimit is a limit of a quota.
type QuotaLimit struct {
	Limit string `json:"limit"` // policy/limit
	Rule  string `json:"rule"`
	// Permits is how many there are in all; Used, Reserved and Remaining add up to it.
	Permits   int64 `json:"permits"`
	Used      int64 `json:"used"`
	Reserved  int64 `json:"reserved"`
	Remaining int64 `json:"remaining"`
	// ResetAfter is in seconds, ResetsAt when that is; null if nothing has to come back.
	ResetAfter json.RawMessage `json:"reset_after"`
	ResetsAt   *time.Time      `json:"resets_at"`
}

// Adjustment is a change of a quota.
type Adjustment struct {
	Time      time.Time `json:"time"`
	Limit     string    `json:"limit"`
	Key       string    `json:"key"`
	Permits   int64     `json:"permits"`
	Remaining int64     `json:"remaining"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
}

// QuotaHistory are the adjustments of a quota, the last first.
type QuotaHistory struct {
	Policy      string       `json:"policy"`
	Key         string       `json:"key"`
	Adjustments []Adjustment `json:"adjustments"`
}
