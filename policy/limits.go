package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/overload"
)

// Policy is one or several limits with a name, each of which has a state for every key.
type Policy struct {
	// Name identifies the policy: required, from 1 to 128 printable ASCII characters except "/", and different from all others.
	// State is kept by it when a set is replaced by another one.
	Name string
	// Limits are the limits, all of which must allow a request: from 1 to 8. Required, except with ModeOff.
	Limits []Limit
	// Key is what requests are counted under where a rule does not say so. Default: nil, all share one state.
	Key Text
	// Cost is how many permits a request costs where a rule does not say so. Default: nil, the Cost of the request or, of a
	// parent, that of the child.
	Cost Number
	// Mode reports whether requests are refused. Default: ModeEnforce.
	Mode Mode
	// Candidate are limits that are measured beside the live ones, as if they had taken their place. They are asked whenever all
	// other policies allow a request that Limits apply to, and refuse no request. Default: none.
	Candidate []Limit
	// TierBy chooses the tier of a request: a name in Tiers. Default: nil, there are no tiers.
	TierBy Text
	// Tiers are limits that apply instead of Limits: as many, with the same names and algorithms. A name that is not there has
	// Limits.
	Tiers map[string][]Limit
	// LimitBy is for limits that requests bring themselves. What it returns applies to the request instead of the limit of the
	// policy and those of Keys, at once and for the state that there is. Then Limits is one limit, whose algorithm all of them
	// have, and there are no tiers. A Candidate is not asked about requests that bring one. Default: nil, requests bring none.
	LimitBy LimitSource
	// Keys are limits that apply to some keys instead of Limits or those of a tier: as many, with the same names and algorithms.
	// At most 65,536.
	Keys map[string][]Limit
	// Parent is the name of a policy that applies as well wherever this one does, with a key of its own: so none of its children
	// ever exceeds it. If several children apply to a request, it costs what the most expensive one does. Default: "", none.
	Parent string
	// QueueLimit, NewestFirst and MaxWait are for callers that are ready to wait: see [weir.KeyedOptions]. MaxWait is how long
	// a request waits at most: from 1 ms to 1 h. Default of MaxWait: 1 s, if there is a queue.
	QueueLimit  int64
	NewestFirst bool
	MaxWait     time.Duration
	// MaxKeys is how many keys each limit tracks at a time, and AdmitWhenFull whether a new one is allowed if none can be
	// forgotten: see [weir.KeyedOptions].
	MaxKeys       int
	AdmitWhenFull bool
	// Lockout locks out keys that do not stop after refusals. Default: nil, none.
	Lockout *Lockout
	// Fail is what happens to a request whose key, tier, cost or own limit cannot be evaluated. It also decides if the limits are
	// shared while the store is unavailable, or if they are durable while they have no owner. Default: FailClosed.
	Fail Fail
	// Consistency is whether and how exactly the limits are shared with other processes through [EngineOptions.Store]. Limits
	// that are shared have no queue, the store bounds how many keys it keeps, and a concurrency limit can only be coherent.
	// Lockouts and what Candidate counts are those of each process; so is MaxKeys, which bounds them. Default: ConsistencyLocal,
	// they are those of this process.
	Consistency Consistency
	// Hold is for how long the permits of a shared concurrency limit, and costs that are settled later, stay taken in the store
	// if the request never ends: from 1 ms to 24 h. It should be longer than any request takes, because one that takes longer
	// gives its permits back before it ends. A request with several shared policies has the max of theirs. It is for policies of
	// DurabilityCluster as well, and must be 0 for others if Consistency is ConsistencyLocal. Default: 1 min.
	Hold time.Duration
	// Durability is what the limits survive. [EngineOptions.Durable] keeps those of DurabilityCluster, in the order of arrival,
	// with a queue if there is a QueueLimit. Consistency must be ConsistencyLocal then, Fail is FailClosed or FailOpen, and the
	// owner bounds the keys. Where Durability changes, the state begins anew. Default: DurabilityMemory.
	Durability Durability
	// Priority is that of requests that the policy applies to, where the engine has a [overload.Shedder]. Of several policies the
	// highest counts.
	Priority overload.Priority
	// OnDecided is the [Observer] of this policy alone. It is called for each request that the policy is applied to, allowed or
	// refused, before the caller has the verdict, but not for probes. p is the limit of the policy that decides. It may be
	// allowed where v is not, as another policy refuses. The goroutine of the request calls it, and waits for it; several do at
	// a time. It must not keep what it gets, or change it. There is no call in shadow, while a key is unlimited, or where a key
	// cannot be found. Each set that is loaded must have it. Default: nil, no call, and no cost.
	OnDecided func(r *Request, p *Part, v *Verdict)
	// Source is the place of the policy, such as "weir.yaml:12:5". Default: "".
	Source string
}

// Limit is a limit of a policy.
type Limit struct {
	// Limit is how much is allowed.
	weir.Limit

	// Name is unique among the limits of a policy: from 1 to 64 printable ASCII characters except "/". Default: that of its
	// window, such as "1m", or of its algorithm. State is kept by it.
	Name string
}

// Lockout locks out a key, for a while, after many refusals. Only refusals by the limits of its policy count, if its mode is
// ModeEnforce, and not those of requests that ask for more than there ever is. While a lockout lasts, nothing is taken, and
// nothing counts towards the next one. A key is remembered as long as its refusals count or it is locked out, at most MaxKeys of
// them at a time, with up to 270 bytes each (TestBytesPerLockout).
type Lockout struct {
	// Refusals is how many refusals within Within lead to a lockout: from 1 to 65535. They are counted exactly up to 33, and
	// as refusals come to a key that had none for Within. Of more than 33 at most a sixteenth may be missed
	// (TestRecentRefusalsKeepToTheirBound); none is counted that there was not. Required.
	Refusals int
	// Within is how long a refusal counts: from 1 ms to 24 h, kept to 50 us. A refusal that is exactly so old still counts.
	// Required.
	Within time.Duration
	// For is how long the lockout lasts: from 1 ms to 3660 days. Required.
	For time.Duration
	// InARow lets a request that is allowed clear the count, so that only refusals in a row lead to a lockout. A client that
	// comes steadily, at several times its limit, is then never locked out, as it is allowed now and then.
	InARow bool
}

// Mode reports whether a policy is in force.
type Mode uint8

const (
	// ModeEnforce refuses what is beyond the limits.
	ModeEnforce Mode = iota
	// ModeShadow refuses nothing, and counts what it would refuse.
	ModeShadow
	// ModeOff does nothing.
	ModeOff

	modes
)

var modeNames = [modes]string{"enforce", "shadow", "off"}

// String is "enforce", "shadow" or "off".
func (m Mode) String() string { return nameIn(modeNames[:], m, "Mode") }

// MarshalText is String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Mode) UnmarshalText(text []byte) error { return findName(modeNames[:], m, text, "mode") }

// Fail is what happens to a request that cannot be decided.
type Fail uint8

const (
	// FailClosed refuses it, with ReasonUnavailable.
	FailClosed Fail = iota
	// FailOpen lets it pass, as far as this policy is concerned.
	FailOpen
	// FailLocal goes on in this process while the store of a shared policy is unavailable, with the limits divided by the number
	// of processes, if the store is a [store.Fleet]; with other stores it refuses. A request whose key, tier or cost cannot be
	// evaluated is refused. It is for shared policies only.
	FailLocal

	fails
)

var failNames = [fails]string{"closed", "open", "local"}

// String is "closed", "open" or "local".
func (f Fail) String() string { return nameIn(failNames[:], f, "Fail") }

// MarshalText is String.
func (f Fail) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (f *Fail) UnmarshalText(text []byte) error { return findName(failNames[:], f, text, "fail mode") }

// nameIn is the name of a value of an enumeration, or what shows one that has none.
func nameIn[E ~uint8](names []string, e E, enumeration string) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", enumeration, uint8(e))
}

// findName sets a value of an enumeration to that of a name.
func findName[E ~uint8](names []string, e *E, text []byte, what string) error {
	at := slices.Index(names, string(text))
	if at < 0 {
		last := len(names) - 1
		return fmt.Errorf("weir: unknown %s %.40q: must be %s or %s", what, text, strings.Join(names[:last], ", "), names[last])
	}
	*e = E(at)
	return nil
}

// Set is a whole configuration: policies, and the rules that apply them.
type Set struct {
	Policies []Policy
	Rules    []Rule
	// Extra is what the caller keeps beside them, to have it back from [Engine.Set] and [Verdict.Set] with the policies and rules
	// that it belongs to. The engine does not look at it. Default: nil.
	Extra any
}
