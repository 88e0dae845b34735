package guard

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirhq/weir/internal/table"
)

// Stats are the options of a [Guard] that matter most, and its counts.
type Stats struct {
	Name                string  `json:"name"`
	CapacityTokens      int     `json:"capacity_tokens"`
	RefillPerSecond     float64 `json:"refill_per_second"` // as it is kept, a multiple of 1 / TokenScale
	TokenScale          int     `json:"token_scale"`
	Shards              int     `json:"shards"` // that are in use
	HardLockoutSeconds  float64 `json:"hard_lockout_seconds"`
	StaleEntrySeconds   float64 `json:"stale_entry_seconds"`
	CleanupIntervalSecs float64 `json:"cleanup_interval_secs"`
	MaxTrackedEndpoints int64   `json:"max_tracked_endpoints"`
	// TrackedEndpoints is how many endpoints are tracked.
	TrackedEndpoints int64 `json:"tracked_endpoints"`

	// Allowed counts the requests that were allowed so far, SoftThrottled those refused with ReasonSoftThrottle,
	// LockedOut those with ReasonHardLockout, and TrackingCapped those with ReasonTrackingCap. Those with an error and those
	// of a closed guard are not counted.
	Allowed        int64 `json:"allowed"`
	SoftThrottled  int64 `json:"soft_throttled"`
	LockedOut      int64 `json:"locked_out"`
	TrackingCapped int64 `json:"tracking_capped"`
	// Lockouts counts the lockouts that have begun.
	Lockouts int64 `json:"lockouts"`
	// Cleanups counts the cleanups that have ended, Stale and Evicted what they have forgotten: see [Cleanup].
	Cleanups int64 `json:"cleanups"`
	Stale    int64 `json:"stale"`
	Evicted  int64 `json:"evicted"`
}

// Stats returns the counts of all endpoints together. It takes no lock.
func (g *Guard) Stats() Stats {
	units, period := g.algorithm.Rate()
	return Stats{
		Name: g.o.Name, CapacityTokens: g.o.CapacityTokens, TokenScale: g.o.TokenScale, Shards: g.states.Shards(),
		RefillPerSecond:    float64(units) * float64(time.Second) / float64(period),
		HardLockoutSeconds: g.o.HardLockout.Seconds(), StaleEntrySeconds: g.o.StaleEntry.Seconds(),
		CleanupIntervalSecs: g.o.CleanupInterval.Seconds(), MaxTrackedEndpoints: g.maxTracked.Load(),
		TrackedEndpoints: g.states.Len(),
		Allowed:          g.allowed.Sum(), SoftThrottled: g.throttled.Sum(), LockedOut: g.lockedOut.Sum(),
		TrackingCapped: g.capped.Sum(), Lockouts: g.lockouts.Sum(),
		Cleanups: g.cleanups.Load(), Stale: g.forgotten.Load(), Evicted: g.evicted.Load(),
	}
}

// Report is what a [Guard] looks like at a moment, or nearly so: endpoints may come while it is made.
type Report struct {
	Stats

	// HardBlockedCount is how many endpoints are locked out.
	HardBlockedCount int64 `json:"hard_blocked_count"`
	// Top are the 20 endpoints under the highest pressure: those that are locked out first, then those that lack more of their
	// tokens, then by address. Those without a name come last.
	Top []Endpoint `json:"top"`
}

// Endpoint is an endpoint in a report.
type Endpoint struct {
	// Endpoint is its address, its network if only a part of the address counts, or its name, and its operation if it
	// has one. It is "(unnamed)" and a part of a hash if the name is not kept: see MinReportCapacity.
	Endpoint string `json:"endpoint"`
	// Blocked reports whether it is locked out, and BlockedSeconds is for how long.
	Blocked        bool    `json:"blocked"`
	BlockedSeconds float64 `json:"blocked_seconds"`
	// Credit is how many whole tokens it has, and Deficit how many it lacks to CapacityTokens.
	Credit  int64   `json:"credit"`
	Deficit float64 `json:"deficit"`
	// Violations is how many violations count now, and Lockouts how many lockouts do if LockoutFactor is above 1.
	Violations uint32 `json:"violations"`
	Lockouts   uint32 `json:"lockouts"`
	// SeenSecondsAgo is when it came last.
	SeenSecondsAgo float64 `json:"seen_seconds_ago"`
	// Refusals is how often it was refused since its name is kept; 0 if it is not.
	Refusals uint64 `json:"refusals"`
}

const topEndpoints = 20

// pressure is what the place of an endpoint in the report depends on first.
type pressure struct {
	blocked     bool
	ahead, part int64 // what is missing to a full bucket
}

func pressureOf(s *entry, now int64) pressure {
	b := s.bucket(now)
	return pressure{s.blocked(now), b.Ahead, b.Part}
}

// pressed is an endpoint in the report.
type pressed struct {
	pressure

	hash     table.Hash
	state    entry
	named    bool
	subject  subject
	refusals uint64
}

// compare orders by pressure, the highest first.
func (p pressure) compare(q pressure) int {
	if p.blocked != q.blocked {
		if p.blocked {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(q.ahead, p.ahead), cmp.Compare(q.part, p.part))
}

// compareNames orders those under the same pressure.
func (p *pressed) compareNames(q *pressed) int {
	if p.named != q.named {
		if p.named {
			return -1
		}
		return 1
	}
	a, b := &p.subject, &q.subject
	if a.network.IsValid() != b.network.IsValid() {
		if a.network.IsValid() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.network.Addr().Compare(b.network.Addr()), cmp.Compare(a.op, b.op), strings.Compare(a.name, b.name),
		cmp.Compare(p.hash.Fingerprint(), q.hash.Fingerprint()),
	)
}

// compareAll is the order of the report.
func (p *pressed) compareAll(q *pressed) int {
	return cmp.Or(p.compare(q.pressure), p.compareNames(q))
}

// ranking keeps the endpoints under the most pressure in the order of the report.
type ranking []pressed

// add gives p its place, if it has one.
func (r *ranking) add(p pressed) {
	at, _ := slices.BinarySearchFunc(*r, p, func(q, p pressed) int { return q.compareAll(&p) })
	if at == topEndpoints {
		return
	}
	if len(*r) == topEndpoints {
		*r = (*r)[:topEndpoints-1]
	}
	*r = slices.Insert(*r, at, p)
}

// beats reports whether the ranking is full of endpoints that come before one without a name.
func (r ranking) beats(p pressure, h table.Hash) bool {
	if len(r) < topEndpoints {
		return false
	}
	last := &r[topEndpoints-1]
	order := last.compare(p)
	return order < 0 || order == 0 && last.hash.Fingerprint() <= h.Fingerprint()
}

// rank returns the endpoints of the report, and how many are locked out. All endpoints are ranked without their names, which
// would take too long to look up while callers wait for the lock, and then those that have names. As these go before others
// under the same pressure, each of the first of all is among the first of one of the two.
func (g *Guard) rank(now int64) (top ranking, blocked int64) {
	all, named := make(ranking, 0, topEndpoints), make(ranking, 0, 2*topEndpoints)
	look := func(h table.Hash, slot table.Slot) bool {
		s := (*entry)(slot.State())
		p := pressureOf(s, now)
		if p.blocked {
			blocked++
		}
		if !all.beats(p, h) {
			all.add(pressed{pressure: p, hash: h, state: *s})
		}
		return true
	}
	// One part of each shard in turn, so that a caller that waits for a lock has it before it is needed again.
	at := make([]table.Cursor, g.states.Shards())
	for i := range at {
		at[i] = g.states.StartAt(i)
	}
	for left := len(at); left > 0; {
		for i := range at {
			if at[i].Shard() == i && g.states.Next(&at[i], look) && at[i].Shard() != i {
				left--
			}
		}
		runtime.Gosched()
	}
	g.names.Each(func(h table.Hash, name subject, refusals uint64) bool {
		shard := g.states.Lock(h)
		defer shard.Unlock()
		if slot := shard.Find(h); slot != nil {
			s := (*entry)(slot.State())
			named.add(pressed{
				pressure: pressureOf(s, now), hash: h, state: *s, named: true, subject: name, refusals: refusals,
			})
		}
		return true
	})
	for i := range all {
		if p := &all[i]; !slices.ContainsFunc(named, func(q pressed) bool { return q.hash == p.hash }) {
			p.subject, p.refusals, p.named = g.names.Lookup(p.hash)
			named = append(named, *p)
		}
	}
	slices.SortFunc(named, func(p, q pressed) int { return p.compareAll(&q) })
	return named[:min(len(named), topEndpoints)], blocked
}

// Report looks at all endpoints, one part of the table at a time. Balances are as of now.
func (g *Guard) Report() Report {
	now := g.now()
	report := Report{Stats: g.Stats()}
	var top ranking
	top, report.HardBlockedCount = g.rank(now)
	units, period := g.algorithm.Rate()
	report.Top = make([]Endpoint, len(top))
	for i := range top {
		p := &top[i]
		e := Endpoint{
			Endpoint: p.subject.String(), Blocked: p.blocked, Refusals: p.refusals,
			Credit:         g.algorithm.Peek(p.state.bucket(now), now, 0).Remaining,
			Deficit:        (float64(p.ahead)*float64(units) + float64(p.part)) / float64(period),
			SeenSecondsAgo: time.Duration(max(now-p.state.at(seenAt), 0)).Seconds(),
		}
		e.Violations, e.Lockouts = g.counted(&p.state, now)
		if p.blocked {
			e.BlockedSeconds = time.Duration(p.state.at(blockedUntilAt) - now).Seconds()
		}
		if !p.named {
			e.Endpoint = fmt.Sprintf("(unnamed) %08x", p.hash.Fingerprint()>>32)
		}
		report.Top[i] = e
	}
	return report
}

// String is the report as text: a line for each option and count, and a table of the endpoints. A name that would not be one
// cell of it, as it has characters that do not print or spaces in a row, is quoted.
func (r Report) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Guard:\t%s\n", cmp.Or(r.Name, "(unnamed)"))
	for _, line := range []struct {
		name  string
		value any
	}{
		{"CapacityTokens", r.CapacityTokens},
		{"RefillPerSecond", r.RefillPerSecond},
		{"TokenScale", r.TokenScale},
		{"Shards", r.Shards},
		{"HardLockoutSeconds", r.HardLockoutSeconds},
		{"StaleEntrySeconds", r.StaleEntrySeconds},
		{"CleanupIntervalSecs", r.CleanupIntervalSecs},
		{"MaxTrackedEndpoints", r.MaxTrackedEndpoints},
		{"TrackedEndpoints", r.TrackedEndpoints},
		{"HardBlockedCount", r.HardBlockedCount},
		{"Allowed", r.Allowed},
		{"SoftThrottled", r.SoftThrottled},
		{"LockedOut", r.LockedOut},
		{"TrackingCapped", r.TrackingCapped},
		{"Lockouts", r.Lockouts},
		{"Cleanups", r.Cleanups},
		{"Stale", r.Stale},
		{"Evicted", r.Evicted},
	} {
		fmt.Fprintf(w, "%s:\t%v\n", line.name, line.value)
	}
	_ = w.Flush() // a Builder takes all that is written to it
	fmt.Fprintf(&text, "\nTop %d endpoints by pressure:\n", topEndpoints)
	if len(r.Top) == 0 {
		return text.String() + "(none)\n"
	}
	w = tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Endpoint\tBlocked\tBlockedSeconds\tCredit\tDeficit\tViolations\tLockouts\tSeenSecondsAgo\tRefusals")
	for _, e := range r.Top {
		blocked := "no"
		if e.Blocked {
			blocked = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%d\t%.3f\t%d\t%d\t%.3f\t%d\n", inLine(e.Endpoint), blocked, e.BlockedSeconds,
			e.Credit, e.Deficit, e.Violations, e.Lockouts, e.SeenSecondsAgo, e.Refusals)
	}
	_ = w.Flush()
	return text.String()
}

// inLine is a name that clients may have chosen, in a form that can neither end a line nor a column.
func inLine(name string) string {
	if quoted := strconv.Quote(name); quoted[1:len(quoted)-1] != name || strings.Contains(name, "  ") {
		return quoted
	}
	return name
}
