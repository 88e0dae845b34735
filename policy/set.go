package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/store"
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
// them at a time, with up to 280 bytes each (TestBytesPerLockout).
type Lockout struct {
	// Refusals is how many refusals within Within lead to a lockout: from 1 to 65535. They are counted exactly up to 33, and
	// as refusals come to a key that had none for Within. Of more than 33 at most a sixteenth may be missed
	// (TestRecentRefusalsKeepToTheirBound); none is counted that there was not. Required.
	Refusals int
	// Within is how long a refusal counts: from 1 ms to 24 h, kept to 50 us. A refusal that is exactly so old still counts.
	// Required.
	Within time.Duration
	// For is how long the lockout lasts: from 1 ms to 3660 days. A shorter one that is loaded ends lockouts that have begun, a
	// longer one applies to the next. Required.
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
	// ModeTag refuses nothing either, and tells of each request that it would refuse: see [Verdict.Over].
	ModeTag
	// ModeOff does nothing.
	ModeOff

	modes
)

var modeNames = [modes]string{"enforce", "shadow", "tag", "off"}

// watches reports whether a policy is asked and refuses nothing.
func (m Mode) watches() bool { return m == ModeShadow || m == ModeTag }

// String is "enforce", "shadow", "tag" or "off".
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

// Rule applies limits to requests. Every rule that matches a request adds its limits, in the order of the rules; a request that
// no rule matches is not limited. A rule that denies comes before all others, wherever it stands.
type Rule struct {
	// Name identifies the rule in explanations and counts: required, from 1 to 128 printable ASCII characters, and different
	// from all others.
	Name string
	// Match chooses the requests that the rule is for. The zero Match is all.
	Match Match
	// When narrows that down. It is asked only if Match matches. Default: nil, always. If it cannot be evaluated, the rule
	// matches, except if it is Exempt: so a rule with Deny denies.
	When Condition
	// Limits are the limits of the request. A policy to which several rules lead with the same key applies once, at the highest
	// of their costs and under the lowest of their limits, whatever the order of the rules. Default: none.
	Limits []Use
	// Exempt frees the request of all limits, those of other rules included. Then there must be no Limits.
	Exempt bool
	// Deny refuses the request at once with ReasonDenied, whatever other rules say: also a request that is exempt, or that a
	// Final rule before this one matches. No limit is asked, and nothing is charged or counts towards a Lockout. It does not
	// apply to requests that name their policy: see [Named]. There must be no Limits then, and neither Exempt, Final nor
	// Afterwards.
	Deny bool
	// Mode is that of a rule with Deny: in ModeShadow it counts the requests that it would deny, and denies none. In ModeOff it
	// does nothing. Other rules have the modes of the policies that they apply. Default: ModeEnforce.
	Mode Mode
	// Final ends the rules: if this one matches, those behind it are not looked at. Rules with Exempt or Deny are looked at
	// nevertheless, and all rules are if When cannot be evaluated.
	Final bool
	// Afterwards is for requests that report what has been spent already, such as the hits that a proxy reports when a response
	// has ended. One that is refused costs its limits nevertheless, in full: what is not there is owed, up to the bound of
	// [Engine.DebitAll], and the next request is refused. The Verdict is a refusal with what remains after the charge, and when
	// the next permit comes. It is no refusal towards a Lockout. Policies in ModeShadow and ModeTag and candidates are charged in
	// full as well. It applies to a request if any rule that matches it has it. See
	// Named.Afterwards for requests that name their policy.
	Afterwards bool
	// Source is the place of the rule, such as "weir.yaml:12:5". Default: "".
	Source string
}

// Use is a policy that a rule applies.
type Use struct {
	// Policy is its name. Required.
	Policy string
	// Key is what the request is counted under. Default: nil, the Key of the policy.
	Key Text
	// Cost is how many permits the request costs: from 0 to 10^15, where 0 takes nothing and is refused only if no permit is
	// available. Of several rules that lead to the same key of the policy the highest cost counts, and if one of their costs
	// cannot be told, or is out of this range, the policy refuses as if all were. Default: nil, the Cost of the policy.
	Cost Number
}

// Match is what can be seen of a request without an expression. All conditions must be true; one that is empty always is.
type Match struct {
	// Methods are the methods of which the request has one, in upper case. GET includes HEAD, as in [net/http.ServeMux]: servers
	// run the handler of GET for it.
	Methods []string
	// Hosts are the hosts of which the request has one, without port: "api.example.com", or "*.example.com" for all below
	// example.com. Case does not matter.
	Hosts []string
	// Paths are patterns of which the path matches one, as those of [net/http.ServeMux]: "/users/{id}" has a wildcard for one
	// segment, "/files/{rest...}" one for the rest, and "/files/" stands for all below; "/files/{$}" ends with the slash. A path
	// that servers read in several ways matches under any of them, so that it is denied, and is exempt only under all: see
	// Request.RawPath.
	Paths []string
	// Headers are conditions on the header, all of which must be true.
	Headers []HeaderMatch
	// Clients are networks of which one contains the address of the client. Mapped IPv4 addresses count as IPv4.
	Clients []netip.Prefix
	// Routes are the names of routes of which the request has one.
	Routes []string
	// Protocols are the protocols of which the request has one.
	Protocols []string
}

// HeaderMatch is a condition on a field of the header. The first value of a field counts, and the last one in another way to read
// the request: see [Request.Header].
type HeaderMatch struct {
	// Name is the name of the field. Case does not matter. Required.
	Name string
	// Value is what the field must be; with a "*" at its end, what it must begin with, so that "*" is any value. Case
	// matters.
	Value string
	// Absent turns it round: there must be no such field. Then Value must be "".
	Absent bool
}

// Consistency is where the limits of a policy are kept, and how exactly processes that share them keep to them.
type Consistency uint8

const (
	// ConsistencyLocal keeps them in this process: each process has limits of its own.
	ConsistencyLocal Consistency = iota
	// ConsistencyCoherent asks the store for every decision: see [store.ConsistencyCoherent].
	ConsistencyCoherent
	// ConsistencyLeased takes permits in blocks and spends them in memory, never above the limit: see
	// [store.ConsistencyLeased].
	ConsistencyLeased
	// ConsistencyOptimistic decides in memory and tells the store afterwards, above the limit by a bounded number of permits: see
	// [store.ConsistencyOptimistic].
	ConsistencyOptimistic

	consistencies
)

var consistencyNames = [consistencies]string{"local", "coherent", "leased", "optimistic"}

// Shared reports whether the limits are kept in a store.
func (c Consistency) Shared() bool { return c != ConsistencyLocal }

// Stored is what charges say of it to a store. ConsistencyLocal, which no store has to do with, is coherent.
func (c Consistency) Stored() store.Consistency {
	switch c {
	case ConsistencyLeased:
		return store.ConsistencyLeased
	case ConsistencyOptimistic:
		return store.ConsistencyOptimistic
	case ConsistencyLocal, ConsistencyCoherent, consistencies:
	}
	return store.ConsistencyCoherent
}

// String is "local", "coherent", "leased" or "optimistic".
func (c Consistency) String() string { return nameIn(consistencyNames[:], c, "Consistency") }

// MarshalText is String.
func (c Consistency) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Consistency) UnmarshalText(text []byte) error {
	return findName(consistencyNames[:], c, text, "consistency")
}

// defaultHold is the Hold of a policy that does not say.
const defaultHold = time.Minute

// Durability is what the limits of a policy survive.
type Durability uint8

const (
	// DurabilityMemory keeps them in memory, of this process or, if they are shared, of a store that promises what it promises.
	DurabilityMemory Durability = iota
	// DurabilityCluster has one owner in the cluster, which allows nothing before it is durable, and a fair queue: see package
	// durable.
	DurabilityCluster
	// DurabilityFile is DurabilityCluster where the owner is this process, which keeps the limits in a file. Only what is shown
	// differs.
	DurabilityFile

	durabilities
)

var durabilityNames = [durabilities]string{"memory", "cluster", "file"}

// Shared reports whether the limits of the policy are kept for several processes: in a store, or by their owner.
func (p *Policy) Shared() bool { return p.Consistency.Shared() || p.Durability != DurabilityMemory }

// String is "memory", "cluster" or "file".
func (d Durability) String() string { return nameIn(durabilityNames[:], d, "Durability") }

// MarshalText is String.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Durability) UnmarshalText(text []byte) error {
	return findName(durabilityNames[:], d, text, "durability")
}
