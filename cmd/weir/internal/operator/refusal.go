package operator

import "time"

// Refusals are the last refusals, the last first.
type Refusals struct {
	// Refusals are those that were asked for, of those that are kept: at most 4096 of the last ones.
	Refusals []Refusal `json:"refusals"`
	// Oldest is when the oldest one that is kept was, the zero time if none is.
	Oldest time.Time `json:"oldest"`
	// Kept counts those that were noted since the start, Missed those that were not, as there were too many at a time.
	Kept   uint64 `json:"kept"`
	Missed uint64 `json:"missed"`
}

// Refusal is a request that was refused, with the numbers of that moment.
type Refusal struct {
	// ID is what the client was told in the field Weir-Refusal.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Request is the request as far as it is known, the first one if there were several.
	Protocol string `json:"protocol,omitempty"`
	Method   string `json:"method,omitempty"`
	Host     string `json:"host,omitempty"`
	Path     string `json:"path,omitempty"`
	Client   string `json:"client,omitempty"`
	// Limits are those that held for it, Binding the place of the one that binds, -1 if none does.
	Limits  []RefusedLimit `json:"limits"`
	Binding int            `json:"binding"`
	// Reason and RetryAfter are those of the verdict.
	Reason     string  `json:"reason"`
	RetryAfter float64 `json:"retry_after"`
	// DeniedBy is the name of the rule that denies the request, "" if none does, and Source where that stands.
	DeniedBy string `json:"denied_by,omitempty"`
	Source   string `json:"source,omitempty"`
	// Version is that of the configuration that was in force.
	Version uint64 `json:"version"`
}

// RefusedLimit is a limit that held for a refused request.
type RefusedLimit struct {
	Policy     string  `json:"policy"`
	Limit      string  `json:"limit"`
	Holds      string  `json:"holds"`
	Rule       string  `json:"rule,omitempty"`
	Source     string  `json:"source,omitempty"` // where the rule stands, or the policy if there is no rule
	Key        string  `json:"key"`
	Cost       int64   `json:"cost"`
	Allowed    bool    `json:"allowed"`
	Reason     string  `json:"reason"`
	Max        int64   `json:"max"` // how many permits there are at most
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after"`
	ResetAfter float64 `json:"reset_after"`
}

// AuditEntry is a change that somebody has made, or has tried to make.
type AuditEntry struct {
	Time time.Time `json:"time"`
	// Who is the name of the token or of the certificate, or "local" if none is needed; From is the address.
	Who    string `json:"who"`
	From   string `json:"from"`
	Action string `json:"action"` // "unlock", "override", "restore", "reset", "reload", "quota-adjust" and "login-failed"
	Policy string `json:"policy,omitempty"`
	Key    string `json:"key,omitempty"`
	Detail string `json:"detail,omitempty"` // such as "100/s, burst 200 for 10m0s"
	Reason string `json:"reason,omitempty"`
	// Result is "ok", or what was wrong.
	Result string `json:"result"`
}
