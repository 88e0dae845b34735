package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// Bound is how exactly the processes that share a limit keep to it.
type Bound struct {
	// Policy and Limit name it. Of is the tier or the key that it is for, such as "tier gold", "" for that of the policy.
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Of     string `json:"of,omitempty"`
	// Holds is the limit, as it may be shown.
	Holds string `json:"holds"`
	// Consistency, Durability and Fail are those of the policy.
	Consistency policy.Consistency `json:"consistency"`
	Durability  policy.Durability  `json:"durability"`
	Fail        policy.Fail        `json:"fail"`
	// Overshoot is by how many permits each process but one can exceed the limit.
	Overshoot int64 `json:"overshoot"`
	// AtOnce is the max number of permits at once. Unused is how many of them each process may keep without using them, so that
	// others are refused. Both are 0 if the limit came from the environment.
	AtOnce int64 `json:"at_once"`
	Unused int64 `json:"unused"`
	// Burned is how many permits of each key are lost, at most, when the owner of a durable limit crashes. It is 0 if the number
	// came from the environment.
	Burned int64 `json:"burned"`
	// RoundTrip reports whether each decision asks the store, or the owner.
	RoundTrip bool `json:"round_trip"`
	// Text is all of that in words.
	Text string `json:"text"`
}

// Bounds returns that of each limit of each policy that is shared or durable, in their order. Of tiers and keys there are 20 for
// a policy.
func (f *File) Bounds() []Bound {
	var all []Bound
	for _, p := range f.policies {
		if !p.Shared() || p.Mode == policy.ModeOff {
			continue
		}
		names := policy.LimitNames(p.Limits)
		add := func(of string, limits []placedLimit) {
			for i, l := range limits {
				b := f.bound(p, l)
				b.Limit, b.Of = names[i], of
				if p.live.limits[i].Name == "" && f.shows(p.live.limits[i].at.Path) {
					b.Limit = "limit" // its name has the window
				}
				all = append(all, b)
			}
		}
		p.each(add)
	}
	return all
}

// each calls f with the limits of a policy, and with those of 20 of its tiers and keys, and what these are for, such as
// "tier gold".
func (p *placedPolicy) each(f func(of string, limits []placedLimit)) {
	f("", p.live.limits)
	told := 0
	for i, all := range [][]namedLimits{p.tiers, p.keys} {
		for _, a := range all[:min(len(all), mostListed-told)] {
			told++
			f([]string{"tier ", "key "}[i]+yamlread.Shorten(a.name), a.limits)
		}
	}
}

// bound is that of a limit.
func (f *File) bound(p *placedPolicy, l placedLimit) Bound {
	b := Bound{
		Policy: p.Name, Holds: f.spellLimit(l), Consistency: p.Consistency, Durability: p.Durability, Fail: p.Fail,
		AtOnce: l.Permits(),
	}
	if b.AtOnce == 0 {
		b.AtOnce = l.Rate().Permits
	}
	hidden := f.shows(l.at.Path)
	asked := "the store"
	if p.Durability != policy.DurabilityMemory {
		asked = "the owner"
	}
	words := "exact, one round trip to " + asked + " for each request"
	switch {
	case concurrent(l):
		b.RoundTrip = true
		hold := p.Hold
		if hold == 0 {
			hold = time.Minute
		}
		words += " and one when it ends; what a process that died had taken comes back within " +
			f.show(p.at.Path+"."+keyHold, yamlread.ShortDuration(hold))
	case p.Durability == policy.DurabilityFile:
		words = "exact; " + f.burned(&b, hidden)
	case p.Durability == policy.DurabilityCluster:
		b.RoundTrip = true
		words += "; " + f.burned(&b, hidden)
	case p.Consistency == policy.ConsistencyLeased:
		words = f.leased(&b, l, hidden)
	case p.Consistency == policy.ConsistencyOptimistic:
		words = f.optimistic(&b, l, hidden)
	default:
		b.RoundTrip = true
	}
	if hidden {
		b.AtOnce, b.Unused, b.Overshoot, b.Burned = 0, 0, 0, 0
	}
	b.Text = words + "; without " + asked + ": " + map[policy.Fail]string{
		policy.FailClosed: "all are refused", policy.FailOpen: "all are allowed",
		policy.FailLocal: "each process keeps to the limit divided by the number of processes",
	}[p.Fail]
	return b
}

// burned fills in what a crash of the owner costs, and says it in words.
func (f *File) burned(b *Bound, hidden bool) string {
	const share = 10 // of the limit is what a record is ahead of what was allowed, if the file does not say
	ahead := max(1, b.AtOnce/share)
	if f.Cluster != nil && f.Cluster.Reserve > 0 {
		ahead = f.Cluster.Reserve
		if f.shows("cluster.reserve") {
			return "a crash of the owner burns what reserve says" + notShown
		}
	}
	b.Burned = min(ahead-1, b.AtOnce)
	switch {
	case hidden && (f.Cluster == nil || f.Cluster.Reserve == 0):
		return "a crash of the owner burns less than a tenth of the limit of each key"
	case b.Burned == 0:
		return "a crash of the owner burns nothing"
	case hidden:
		return "a crash of the owner burns at most " + spellPermits(ahead-1) + " of each key"
	}
	return "a crash of the owner burns at most " + spellPermits(b.Burned) + " of each key"
}

const notShown = "; the numbers came from the environment and are not shown"

// leased fills in the bound of a limit whose permits are taken in blocks, and says it in words.
func (f *File) leased(b *Bound, l placedLimit, hidden bool) string {
	var o store.LeasedOptions
	if f.Store != nil {
		o.Term = f.Store.Leased.Term
	}
	lease := o.Bound(l.Limit.Limit)
	switch {
	case !lease.Leased:
		b.RoundTrip = true
		return "never above the limit, which is too small, or too fast, for blocks: one round trip to the store for each request"
	case hidden:
		return "never above the limit, decided in memory" + notShown
	}
	b.AtOnce, b.Unused = lease.Lowered, lease.Block
	n := f.processes()
	return fmt.Sprintf("never above the limit, decided in memory; at most %s at once, of which each process may keep %s unused, "+
		"so with %d processes %s of the limit",
		spellPermits(b.AtOnce), yamlread.Count(b.Unused), n, yamlread.Count(min(lease.Unused(n), lease.Limit)))
}

// optimistic fills in the bound of a limit that is told to the store afterwards, and says it in words.
func (f *File) optimistic(b *Bound, l placedLimit, hidden bool) string {
	var o store.OptimisticOptions
	if f.Store != nil {
		o.Interval, o.Drift = f.Store.Optimistic.Interval, f.Store.Optimistic.Drift
	}
	if hidden {
		return "decided in memory, above the limit by a bounded number of permits for each process but one" + notShown
	}
	after := "which are missing afterwards"
	if l.Algorithm() == weir.AlgorithmSlidingWindow || l.Algorithm() == weir.AlgorithmSlidingCounter {
		after = "in each window"
	}
	b.Overshoot = o.DriftOf(l.Limit.Limit)
	n := f.processes()
	return fmt.Sprintf("decided in memory, above the limit by at most %s for each process but one, "+
		"so with %d processes by %d, %s", spellPermits(b.Overshoot), n, uint64(n-1)*uint64(b.Overshoot), after)
}

// processes is how many there are in what is told as an example: as many as the store is told to assume, or 3.
func (f *File) processes() int {
	if f.Store != nil && f.Store.Replicas > 1 && !f.shows("store.replicas") {
		return f.Store.Replicas
	}
	return 3
}

func spellPermits(n int64) string {
	if n == 1 {
		return "1 permit"
	}
	return yamlread.Count(n) + " permits"
}

// String is the bound in words, behind the name of what it is for.
func (b Bound) String() string {
	of := ""
	if b.Of != "" {
		of = ", " + b.Of
	}
	how := b.Consistency.String()
	switch b.Durability {
	case policy.DurabilityCluster:
		how = "durable"
	case policy.DurabilityFile:
		how = "durable in a file"
	case policy.DurabilityMemory:
	}
	return strings.Join([]string{b.Policy, "/", b.Limit, of, " (", b.Holds, "), ", how, ": ", b.Text}, "")
}
