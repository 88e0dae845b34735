package operator

import "time"

// Key is the state of a key of a policy. Keys are spelled as [SpellKey] does, here and wherever else the admin API tells or takes
// them.
type Key struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	// Named reports whether the key is known by name. Otherwise it is "" and ID stands for it.
	Named bool   `json:"named"`
	ID    string `json:"id"`
	// Limits are those of the policy; in a list of keys, the one under the most pressure alone.
	Limits []KeyLimit `json:"limits"`
	// LockedFor is for how long it is still locked out, 0 if it is not. RecentRefusals is how many refusals count towards a
	// lockout.
	LockedFor      float64   `json:"locked_for"`
	RecentRefusals int       `json:"recent_refusals"`
	Override       *Override `json:"override,omitempty"`
}

// KeyLimit is what is known of a key of a limit.
type KeyLimit struct {
	Name       string  `json:"name"`
	Holds      string  `json:"holds"`
	Tracked    bool    `json:"tracked"`
	Allowed    bool    `json:"allowed"` // whether one permit would be granted now
	Reason     string  `json:"reason"`
	Limit      int64   `json:"limit"`
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after"`
	ResetAfter float64 `json:"reset_after"`
	Queued     int64   `json:"queued"`
	Waiters    int     `json:"waiters"`
	Refused    uint64  `json:"refused"`
}

// Lockout is a key that is locked out.
type Lockout struct {
	Policy string  `json:"policy"`
	Key    string  `json:"key"`
	For    float64 `json:"for"`
}

// Change names what an action is about.
type Change struct {
	Policy string `json:"policy,omitempty"`
	Key    string `json:"key"`
	Reason string `json:"reason,omitempty"` // at most 1024 bytes
}

// Override is a limit that holds for one key for a while, as it is asked for and as it is listed.
type Override struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	// Limits are those that hold instead, by the name of the limit, such as "100/s, burst 200" or "100/s"; where the policy has
	// one limit, the name may be "". Exclusive with Unlimited.
	Limits    map[string]string `json:"limits,omitempty"`
	Unlimited bool              `json:"unlimited,omitempty"`
	// For is for how many seconds: from 1 to 316224000. In a list it is what is left.
	For    float64 `json:"for"`
	Reason string  `json:"reason,omitempty"`
	// By is who made it, and Since when. The server sets them.
	By    string    `json:"by,omitempty"   set:"server"`
	Since time.Time `json:"since,omitzero" set:"server"`
}

// The servers that a change is made in.
const (
	ThisReplica = "this one only"
	AllReplicas = "all"
)

// Changed is the answer to an action.
type Changed struct {
	// Changed reports whether there was something to change: a lockout to end, for instance.
	Changed bool `json:"changed"`
	// Replicas tells in which servers it was changed: [ThisReplica], or [AllReplicas] where what was changed is kept for all of
	// them. It is "" of a reload.
	Replicas string `json:"replicas,omitempty"`
	// Version and Changes are those of a reload.
	Version uint64 `json:"version,omitempty"`
	Changes int    `json:"changes,omitempty"`
}
