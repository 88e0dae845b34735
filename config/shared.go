package config

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const (
	keyConsistency = "consistency"
	keyHold        = "hold"
)

var consistencyNames = []string{
	policy.ConsistencyLocal.String(), policy.ConsistencyCoherent.String(), policy.ConsistencyLeased.String(),
	policy.ConsistencyOptimistic.String(),
}

var consistencyHints = map[string]string{
	"shared": consistencyNames[1], "strict": consistencyNames[1], "strong": consistencyNames[1], "exact": consistencyNames[1],
	"global": consistencyNames[1], "lease": consistencyNames[2], "batch": consistencyNames[2], "eventual": consistencyNames[3],
	"async": consistencyNames[3], unset: consistencyNames[0], "memory": consistencyNames[0],
}

// sharing reads whether other processes share a policy, and checks that against what else it says.
func (d *decoder) sharing(o *yamlread.Object, p *placedPolicy) {
	at, given := o.Get(keyConsistency)
	if given {
		p.consistency = at
		word, ok := d.Choice(at, consistencyNames, consistencyHints)
		if !ok {
			return
		}
		_ = p.Consistency.UnmarshalText([]byte(word))
	}
	p.unset(o)
	hold, holds := o.Get(keyHold)
	switch cluster := p.Durability == policy.DurabilityCluster; {
	case cluster && p.Consistency.Shared():
		d.Wrong(p.durability, "cannot be cluster beside consistency "+d.written(at.Path, p.Consistency.String())+
			": a policy is kept by the owner of the cluster, or by a store", "remove consistency, or write durability: memory")
		return
	case cluster:
		d.undurable(o, p)
		return
	}
	if !p.Consistency.Shared() {
		const fix = "add consistency: coherent, or remove it"
		if holds {
			d.Wrong(hold.OfKey(),
				"belongs to shared policies: one that is local holds nothing in a store", fix)
		}
		if fail, given := o.Get("fail"); given && p.Fail == policy.FailLocal {
			d.Wrong(fail, "must be closed or open: local is for shared policies, while their store is unavailable", fix)
		}
		return
	}
	d.unshared(o, p)
}

// unshared finds what a shared policy cannot have.
func (d *decoder) unshared(o *yamlread.Object, p *placedPolicy) {
	if queue, given := o.Get(keyQueue); given && p.QueueLimit > 0 {
		d.Wrong(queue.OfKey(), "a shared policy has no queue: it tells when to come back",
			"remove it, or write consistency: local")
	}
	if full, given := o.Get("when_full"); given && p.AdmitWhenFull {
		d.Wrong(full, "must be deny: the keys of a shared policy are bounded by its store",
			"remove it, or write consistency: local")
	}
	for _, l := range p.live.limits {
		if concurrent(l) && p.Consistency != policy.ConsistencyCoherent {
			d.Wrong(l.at, "a limit of concurrency cannot be "+p.Consistency.String()+": it must be coherent or local",
				"write consistency: coherent, or make another policy of this limit")
		}
	}
	d.uncountableAll(p, keyConsistency+": local")
}

// uncountableAll is uncountable for all limits of a policy. Otherwise is what it can say to have them nevertheless.
func (d *decoder) uncountableAll(p *placedPolicy, otherwise string) {
	d.uncountable(p.live, otherwise)
	for _, alternatives := range [][]namedLimits{p.tiers, p.keys} {
		for _, a := range alternatives {
			d.uncountable(a.limitSet, otherwise)
		}
	}
}

// mostRatio is the largest number of the rate of a token bucket, as a fraction in permits per microsecond in its lowest terms.
const mostRatio = 1 << 50

// uncountable finds limits that the store, whose unit of time is the microsecond, cannot count exactly.
func (d *decoder) uncountable(set limitSet, otherwise string) {
	fix := "write a period of whole microseconds, or " + otherwise
	for _, l := range set.limits {
		if !l.ok {
			continue
		}
		if why, short := uncountable(l.Limit.Limit); short {
			d.Wrong(l.at, "cannot be counted by the store: "+why, "write fewer segments, or "+otherwise)
		} else if why != "" {
			d.Wrong(l.at, "cannot be counted by the store: "+why, fix)
		}
	}
}

// uncountable is why a store cannot count a limit exactly, "" if it can, and whether that is because its segments are too short.
func uncountable(l weir.Limit) (why string, short bool) {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		permits, period := l.Rate().Permits*int64(time.Microsecond), int64(l.Rate().Period)
		divisor, rest := permits, period
		for rest != 0 {
			divisor, rest = rest, divisor%rest
		}
		if max(permits, period)/divisor > mostRatio {
			return "of the permits in a microsecond, as a fraction, both numbers must be at most 2^50", false
		}
	case weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter:
		switch {
		case l.Rate().Period%time.Microsecond != 0:
			return "the window of a shared limit must be whole microseconds", false
		case l.Algorithm() == weir.AlgorithmSlidingWindow && time.Duration(l.Segments())*time.Microsecond > l.Rate().Period:
			return "the segments of a shared limit must be at least 1us long", true
		}
	case weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow:
	}
	return "", false
}

// storeless finds shared policies that have no store, and a store that has no policy.
func (d *decoder) storeless(f *File) {
	shared := false
	for _, p := range f.policies {
		if !p.Consistency.Shared() {
			continue
		}
		shared = true
		if f.Store == nil && !d.hasStore {
			d.Wrong(p.consistency, "needs a store, and the file has none: processes share a policy through one",
				"add store: redis://127.0.0.1:6379 at the top, start weir serve --store URL, or write consistency: local")
		}
	}
	if f.Store != nil && !shared && len(f.policies) > 0 {
		d.Warn(f.Store.place.OfKey(), "no policy is shared: the store is not used",
			"add consistency: coherent to a policy, or remove it")
	}
}

// explainStore writes where shared policies are kept.
func (f *File) explainStore(w io.Writer) {
	s := f.Store
	if s == nil {
		return
	}
	fmt.Fprint(w, "\nstore\n")
	at := s.String()
	if s.Master != "" {
		at = "set " + f.show("store.master", s.Master) + " of the sentinels " + at
	}
	line(w, "at", at)
	prefix := s.Prefix
	if prefix == "" {
		prefix = "weir:"
	}
	line(w, "prefix", f.show("store.prefix", prefix))
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 100 * time.Millisecond
	}
	line(w, "timeout", f.show("store.timeout", yamlread.ShortDuration(timeout)))
	number := func(path string, n, otherwise int) string {
		return f.show("store."+path, strconv.Itoa(cmp.Or(n, otherwise)))
	}
	line(w, "waiting", "at most "+number("max_in_flight", s.MaxInFlight, 10_000)+" requests")
	line(w, "connections", number("connections", s.Connections, 2)+" to each server")
	line(w, "processes", number("replicas", s.Replicas, 1)+", until the store has told how many there are")
	modes := map[policy.Consistency]bool{}
	for _, p := range f.policies {
		modes[p.Consistency] = true
	}
	if modes[policy.ConsistencyLeased] {
		line(w, "leased", "for a term of "+f.show("store.leased.term", yamlread.ShortDuration(cmp.Or(s.Leased.Term,
			time.Second)))+
			", "+number("leased.max_keys", s.Leased.MaxKeys, 1_000_000)+" keys at a time")
	}
	if modes[policy.ConsistencyOptimistic] {
		interval := yamlread.ShortDuration(cmp.Or(s.Optimistic.Interval, 100*time.Millisecond))
		line(w, "optimistic", "told every "+f.show("store.optimistic.interval", interval)+", a drift of "+
			f.show("store.optimistic.drift", strconv.Itoa(cmp.Or(s.Optimistic.Drift, 10))+"%")+
			", "+number("optimistic.max_keys", s.Optimistic.MaxKeys, 1_000_000)+" keys at a time")
	}
}

// explainSharing writes whether a policy is shared, and what becomes of requests that cannot be decided.
func (f *File) explainSharing(w io.Writer, p *placedPolicy) {
	fail := map[policy.Fail]string{
		policy.FailClosed: ": refuses requests whose key cannot be told",
		policy.FailOpen:   ": lets requests pass whose key cannot be told",
		policy.FailLocal:  ": refuses requests whose key cannot be told",
	}[p.Fail]
	if p.Consistency.Shared() {
		line(w, keyConsistency, f.show(p.at.Path+"."+keyConsistency, p.Consistency.String())+map[policy.Consistency]string{
			policy.ConsistencyCoherent:   ": the store decides on every request",
			policy.ConsistencyLeased:     ": blocks of the store are spent in memory, never above the limit",
			policy.ConsistencyOptimistic: ": decided in memory, above the limit by a bounded number",
		}[p.Consistency])
		f.explainHold(w, p)
		fail += map[policy.Fail]string{
			policy.FailClosed: ", and all while the store is unavailable",
			policy.FailOpen:   ", and all while the store is unavailable",
			policy.FailLocal:  "; limits in this process while the store is unavailable",
		}[p.Fail]
	}
	if p.Durability != policy.DurabilityMemory {
		f.explainDurability(w, p)
		fail += ", and all while the cluster has no owner"
	}
	line(w, "fail", f.show(p.at.Path+".fail", p.Fail.String())+fail)
}

// explainHold writes how long permits stay taken.
func (f *File) explainHold(w io.Writer, p *placedPolicy) {
	line(w, keyHold, f.show(p.at.Path+"."+keyHold, yamlread.ShortDuration(cmp.Or(p.Hold, time.Minute)))+
		" for what is settled later")
}
