package operator

import (
	"time"

	"github.com/weirhq/weir/policy"
)

// Overview is the state of a server.
type Overview struct {
	// Version is that of the program, Started when it has begun, Now when this was said.
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	// Draining tells that the server is shutting down.
	Draining bool   `json:"draining"`
	Config   Loaded `json:"config"`
	// Requests and the like are counts since the start: see [policy.Report].
	Requests  uint64   `json:"requests"`
	Refused   uint64   `json:"refused"`
	Denied    uint64   `json:"denied"`
	Exempt    uint64   `json:"exempt"`
	Unlimited uint64   `json:"unlimited"`
	Canceled  uint64   `json:"canceled"`
	Latency   Latency  `json:"latency"`
	Process   Process  `json:"process"`
	Policies  []Policy `json:"policies"`
	// Fronts are what each front says about itself, by its name, as in /v1/status.
	Fronts map[string]any `json:"fronts,omitempty"`
}

// Latency is how long decisions take, in seconds.
type Latency struct {
	Measured uint64  `json:"measured"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
	// Buckets are those of [policy.Latency] that are not empty: up to how many seconds, and how many.
	Buckets [][2]float64 `json:"buckets"`
}

// Process is what the program uses.
type Process struct {
	Goroutines int     `json:"goroutines"`
	HeapBytes  uint64  `json:"heap_bytes"`
	OpenFiles  int     `json:"open_files"` // -1 if it is not known
	CPUSeconds float64 `json:"cpu_seconds"`
}

// Policy is a policy in force, and what it has counted since the start.
type Policy struct {
	policy.PolicyReport

	// Limits are its limits in words, by name.
	Limits []Limit `json:"limits"`
	// Candidate are those of its candidate.
	Candidate []Limit `json:"candidate,omitempty"`
	// Key says how the key is made of a request, "" if all requests share one state. Parent is the policy above.
	Key    string `json:"key,omitempty"`
	Parent string `json:"parent,omitempty"`
	Fail   string `json:"fail"`
	Source string `json:"source,omitempty"`
	// Lockout is that in words, "" if there is none.
	Lockout string `json:"lockout,omitempty"`
}

// Limit is a limit in words.
type Limit struct {
	Name  string `json:"name"`
	Holds string `json:"holds"` // such as "10/s, burst 20"
}

// Rule is a rule, and what it has counted.
type Rule struct {
	Name string `json:"name"`
	// Match is what it matches in words, "all requests" for those. Limits are the policies that it applies.
	Match  string   `json:"match"`
	Limits []string `json:"limits"`
	Exempt bool     `json:"exempt"`
	// Deny reports whether it denies its requests, and Mode how: "enforce", "shadow" or "off".
	Deny  bool   `json:"deny"`
	Mode  string `json:"mode"`
	Final bool   `json:"final"`
	// Afterwards says that its requests are charged also if they are refused.
	Afterwards bool   `json:"afterwards"`
	Source     string `json:"source,omitempty"`
	Matched    uint64 `json:"matched"`
	Failed     uint64 `json:"failed"`
}

// Loaded is which configuration is in force.
type Loaded struct {
	File    string    `json:"file"` // "" if the limit is that of the command line
	Version uint64    `json:"version"`
	Loaded  time.Time `json:"loaded"`
	// Reloads counts those that were put in force after the first one, Refused those that could not be.
	Reloads uint64 `json:"reloads"`
	Refused uint64 `json:"reloads_refused"`
	// LastError is why the last one was refused, "" if it was not.
	LastError string `json:"last_error,omitempty"`
}

// Configuration is what is in force, with what became of the last reloads.
type Configuration struct {
	Loaded

	// Text is the file in force, without what came from the environment: as it was read, or "" if it is too large or there is
	// none.
	Text string `json:"text"`
	// History are the last reloads, the last first.
	History []Reload `json:"history"`
	Rules   []Rule   `json:"rules"`
}

// Reload is what became of a reload.
type Reload struct {
	Time    time.Time `json:"time"`
	Cause   string    `json:"cause"` // such as "SIGHUP", "file" and "API"
	Version uint64    `json:"version"`
	Changes []string  `json:"changes,omitempty"` // at most 200, each such as "policies.login.limits.1m.rate: 5/m -> 6/m (kept)"
	// Mistakes are why it was refused, none if it was not.
	Mistakes []string `json:"mistakes,omitempty"`
}

// Replicas are the others that share limits, and how what they share is.
type Replicas struct {
	// Store is what /v1/status has under "store", Cluster what it has under "cluster"; nil if there is none.
	Store   any `json:"store,omitempty"`
	Cluster any `json:"cluster,omitempty"`
}

// Report is the state of one policy for people, of which there is a text form too: its counts, and the 20 keys under the most
// pressure, those locked out first.
type Report struct {
	Time   time.Time `json:"time"`
	Policy Policy    `json:"policy"`
	Top    []Key     `json:"top"`
}
