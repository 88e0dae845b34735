//go:build linux

package soak

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/bounds"
)

// scope is which clients share the permits of a policy.
type scope int

const (
	local   scope = iota // each process of a node has its own
	shared               // all nodes by Redis, which loses them when it is started again
	leased               // the same, in blocks
	durable              // one owner, whose records survive all
)

var scopeNames = [...]string{"local", "coherent", "leased", "durable"}

// String is what the report calls it.
func (s scope) String() string { return scopeNames[s] }

// use is how clients use a policy.
type use int

const (
	takes      use = iota // permits are taken, by one client or another
	refunds               // and sometimes given back, or all of them are
	waits                 // some clients wait for theirs
	reserves              // permits are reserved, and settled for what was needed
	holds                 // slots are reserved, and released
	quotas                // a quota is used up, and then that of the next key
	settled               // a quota of reservations is used up, and then that of the next key
	both                  // permits of this and the next policy are taken as one step, or none
	second                // the other one of these
	spreads               // there are very many keys
	overridden            // an operator overrides the limit from time to time
)

// limit is one of a policy.
type limit struct {
	name string
	// rate, burst are those of a token bucket, or of a quota or slots if rate is 0.
	rate, burst int64
	// length, segments are those of a window of burst permits.
	length   time.Duration
	segments int
	slots    bool
}

// policy is one of the configuration, and what is asked of it.
type policy struct {
	name   string
	scope  scope
	use    use
	limits []limit
	most   int64 // how many permits are asked for at a time
	weight int
	queue  string
	other  string // further keys of the configuration
	// reloaded tells that its limit is doubled and halved while it is used.
	reloaded bool
}

// exact reports whether nothing may be refused that is there.
func (p *policy) exact() bool {
	return p.scope != leased && p.use != waits && p.use != spreads && p.use != overridden && p.use != reserves
}

func bucket(rate, burst int64) limit { return limit{name: "bucket", rate: rate, burst: burst} }

func window(permits int64, length time.Duration, segments int) limit {
	return limit{name: "window", burst: permits, length: length, segments: segments}
}

func quota(permits int64) limit { return limit{name: "quota", burst: permits} }

func slots(permits int64) limit { return limit{name: "slots", burst: permits, slots: true} }

// policies are all that are used. Their limits are below what is asked for, at the usual rate.
func policies() []*policy {
	one := func(l ...limit) []limit { return l }
	return []*policy{
		{name: "local-bucket", use: refunds, limits: one(bucket(3, 6)), most: 2, weight: 3},
		{name: "local-window", limits: one(window(6, 2*time.Second, 1)), most: 2, weight: 2},
		{name: "local-sliding", limits: one(window(9, 3*time.Second, 6)), most: 2, weight: 2},
		{name: "local-two", limits: one(bucket(2, 6), window(9, 3*time.Second, 1)), most: 2, weight: 2},
		{name: "local-queue", use: waits, limits: one(bucket(3, 3)), most: 2, weight: 2, queue: "{limit: 8, max_wait: 1s}"},
		{name: "local-slots", use: holds, limits: one(slots(2)), most: 1, weight: 2},
		{name: "local-tokens", use: reserves, limits: one(bucket(12, 40)), most: 20, weight: 2},
		{name: "local-first", use: both, limits: one(bucket(3, 6)), most: 2, weight: 3},
		{name: "local-second", use: second, limits: one(bucket(2, 4)), most: 2, weight: 1},
		{name: "local-spread", use: spreads, limits: one(bucket(1, 2)), most: 1, weight: 2, other: ", max_keys: 2000"},
		{name: "local-reloaded", limits: one(bucket(2, 4)), most: 2, weight: 2, reloaded: true},
		{name: "local-override", use: overridden, limits: one(bucket(2, 4)), most: 2, weight: 2},
		{name: "coherent-bucket", scope: shared, use: refunds, limits: one(bucket(8, 16)), most: 2, weight: 3},
		{name: "coherent-window", scope: shared, limits: one(window(20, 2*time.Second, 1)), most: 2, weight: 2},
		{name: "coherent-two", scope: shared, limits: one(bucket(6, 12), window(30, 6*time.Second, 6)), most: 2, weight: 2},
		{name: "coherent-slots", scope: shared, use: holds, limits: one(slots(4)), most: 1, weight: 2},
		{name: "coherent-first", scope: shared, use: both, limits: one(bucket(8, 16)), most: 2, weight: 3},
		{name: "coherent-second", scope: shared, use: second, limits: one(bucket(5, 10)), most: 2, weight: 1},
		{name: "mixed-local", use: both, limits: one(bucket(2, 6)), most: 2, weight: 2},
		{name: "mixed-coherent", scope: shared, use: second, limits: one(bucket(3, 9)), most: 2, weight: 1},
		{name: "mixed-stored", scope: shared, use: both, limits: one(bucket(5, 10)), most: 2, weight: 2},
		{name: "mixed-durable", scope: durable, use: second, limits: one(bucket(4, 8)), most: 2, weight: 1},
		{name: "leased-bucket", scope: leased, limits: one(bucket(60, 240)), most: 15, weight: 3},
		{name: "durable-bucket", scope: durable, limits: one(bucket(8, 16)), most: 2, weight: 3},
		{name: "durable-window", scope: durable, limits: one(window(20, 2*time.Second, 1)), most: 2, weight: 2},
		{name: "durable-two", scope: durable, limits: one(bucket(6, 12), quota(100_000_000)), most: 2, weight: 2},
		{
			name: "durable-queue", scope: durable, use: waits, limits: one(bucket(5, 5)), most: 2, weight: 2,
			queue: "{limit: 16, max_wait: 2s}",
		},
		{name: "durable-quota", scope: durable, use: quotas, limits: one(quota(60)), most: 3, weight: 2},
		{name: "durable-reserved", scope: durable, use: settled, limits: one(quota(200)), most: 6, weight: 2},
	}
}

// bound is what holds for a limit.
func (p *policy) bound(l *limit, clocks *clocks, lost bool) bounds.Limit { //nolint:ireturn // there are several
	offset, slack := clocks.wall()
	if p.scope == local {
		slack = 0 // they have the same clock as the clients
	}
	rate, burst := l.rate, l.burst
	if p.reloaded && !lost {
		rate, burst = 2*rate, 2*burst
	}
	if l.length > 0 {
		return bounds.Window{
			Permits: burst, Length: l.length, Segments: l.segments, Aligned: p.scope != local, Offset: offset, Slack: slack,
		}
	}
	return bounds.Bucket{Rate: float64(rate), Burst: float64(burst), Slack: slack}
}

// yaml is the limit as it is configured.
func (l *limit) yaml(factor int64) string {
	switch {
	case l.slots:
		return fmt.Sprintf("{name: %s, algorithm: concurrency, permits: %d}", l.name, l.burst)
	case l.segments == 1:
		return fmt.Sprintf("{name: %s, algorithm: fixed-window, rate: %d/%v}", l.name, l.burst, l.length)
	case l.segments > 1:
		return fmt.Sprintf("{name: %s, algorithm: sliding-window, rate: %d/%v, segments: %d}",
			l.name, l.burst, l.length, l.segments)
	case l.rate == 0:
		// The year ends half a year from now.
		month := (int(time.Now().UTC().Month())+5)%12 + 1
		return fmt.Sprintf("{name: %s, algorithm: calendar-window, permits: %d, every: year, month: %d}", l.name, l.burst, month)
	}
	return fmt.Sprintf("{name: %s, rate: %d/s, burst: %d}", l.name, factor*l.rate, factor*l.burst)
}

// variant is which of several configurations is written.
type variant struct {
	doubled bool
	broken  bool
	number  int
}

// setup is what does not change of the configuration of a node.
type setup struct {
	name, directory, store, forward, listenForward string
	peers                                          map[string]string
	listenPeer                                     string
	hold                                           time.Duration
	reserve                                        int64
}

// configuration is that of a node.
func configuration(all []*policy, s setup, v variant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nx-number: %d\n", v.number)
	fmt.Fprintf(&b, "store: {url: 'redis://%s', timeout: 500ms, leased: {term: 1s}}\n", s.store)
	fmt.Fprintf(&b, "cluster:\n  directory: '%s'\n  name: %s\n  reserve: %d\n  peers:\n", s.directory, s.name, s.reserve)
	for name, url := range s.peers {
		fmt.Fprintf(&b, "    %s: '%s'\n", name, url)
	}
	fmt.Fprintf(&b, "  listen: '%s'\n  address: '%s'\n  listen_address: '%s'\n", s.listenPeer, s.forward, s.listenForward)
	b.WriteString("policies:\n")
	for _, p := range all {
		factor := int64(1)
		if p.reloaded && v.doubled {
			factor = 2
		}
		var limits []string
		for i := range p.limits {
			limits = append(limits, p.limits[i].yaml(factor))
		}
		fmt.Fprintf(&b, "  %s: {limits: [%s], key: 'attributes[\"%s\"]'%s", p.name, strings.Join(limits, ", "), p.name, p.other)
		switch p.scope {
		case local:
		case shared:
			fmt.Fprintf(&b, ", consistency: coherent, hold: %v", s.hold)
		case leased:
			fmt.Fprintf(&b, ", consistency: leased")
		case durable:
			fmt.Fprintf(&b, ", durability: cluster, hold: %v", s.hold)
		}
		if p.queue != "" {
			b.WriteString(", queue: " + p.queue)
		}
		b.WriteString("}\n")
	}
	b.WriteString("rules:\n")
	for _, p := range all {
		fmt.Fprintf(&b, "  - {name: %[1]s, match: {protocol: rls, host: soak, path: /%[1]s}, limits: %[1]s}\n", p.name)
	}
	if v.broken {
		b.WriteString("  - {name: broken, limit: nobody}\n")
	}
	return b.String()
}
