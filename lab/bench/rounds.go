package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Settings say how long to measure.
type Settings struct {
	// Time is how long one measurement of one subject takes, about.
	Time time.Duration
	// Count is how many rounds there are. In each, all subjects of a row are measured once.
	Count int
	// Wall is for how long the measurements run that are about time itself: how much 64 goroutines are granted, and how
	// many waits there are. WallCount is how often the latter are repeated.
	Wall      time.Duration
	WallCount int
	// Repeats is how many measurements of a row are made again because they were disturbed, Meet how long goroutines try to
	// get to different processors before they start anyway.
	Repeats int
	Meet    time.Duration

	// Keys are the two numbers of keys that limiters of many keys hold, AttackKeys how many different keys attack them.
	Keys       [2]int
	AttackKeys int
	// KeyedRounds is how often first sights and pauses are measured, KeyedIdle after which time without a request keys
	// may be removed where that is measured.
	KeyedRounds int
	KeyedIdle   time.Duration
	// RuleBatches is how many requests the rule engine is asked for, in batches of 1024, before they come again.
	RuleBatches int
	// Redis is how long one measurement of a limiter in Redis takes, and RedisCount how many rounds of them there are.
	Redis      time.Duration
	RedisCount int
	// Durable is how long one measurement of a durable limit takes, DurableCount how many rounds of them there are, and
	// DurableCallers how many callers there are at most.
	Durable        time.Duration
	DurableCount   int
	DurableCallers int
	// Wire is how long one measurement of a server takes, and WireCount how many rounds of them there are. WireKeys is how many
	// keys servers hold where all are resident, WireIdle how many connections are left alone.
	Wire      time.Duration
	WireCount int
	WireKeys  int
	WireIdle  int
}

// Figure is what was measured of one subject.
type Figure struct {
	By   string `json:"by"`
	Call string `json:"call"`
	// Nanos is the median of the wall time per call in nanoseconds, Spread half of the distance between its quartiles
	// relative to it.
	Nanos  float64 `json:"ns_per_call"`
	Spread float64 `json:"spread"`
	Allocs float64 `json:"allocs_per_call"`
	// Busy is the CPU time over the wall time: 2 if two goroutines ran on two processors all of the time. It is the
	// least of all rounds.
	Busy float64 `json:"cpu_per_wall"`
}

// Comparison is a floor, and how weir compares with it.
type Comparison struct {
	Figure

	// Ratio is the median of the ratios of weir to the floor in the same round.
	Ratio       float64 `json:"ratio"`
	RatioSpread float64 `json:"ratio_spread"`
	// Target is the most that the ratio may be, 0 if nothing was promised, and then Met is true.
	Target float64 `json:"target"`
	Met    bool    `json:"met"`
}

// RowResult is a measured row.
type RowResult struct {
	Name       string       `json:"name"`
	Goroutines int          `json:"goroutines"`
	How        string       `json:"how"`
	Ours       Figure       `json:"weir"`
	Floors     []Comparison `json:"floors"`
	Peers      []Figure     `json:"peers"`
	NoPeer     string       `json:"no_peer,omitempty"`
	Most       float64      `json:"at_most_ns,omitempty"`
	// Undisturbed tells that the goroutines of every measurement started on different processors, and had these to
	// themselves as far as they did not block each other.
	Undisturbed bool `json:"undisturbed"`
}

// Best is the fastest peer, not ok if there is none.
func (r RowResult) Best() (best Figure, ok bool) {
	for i, p := range r.Peers {
		if i == 0 || p.Nanos < best.Nanos {
			best = p
		}
	}
	return best, len(r.Peers) > 0
}

// DefaultSettings are those of make bench: all of it takes about twenty minutes.
func DefaultSettings() Settings {
	return Settings{
		Time: 50 * time.Millisecond, Count: 11, Wall: time.Second, WallCount: 3, Repeats: 22, Meet: time.Second / 2,
		Keys: [2]int{1_000_000, 10_000_000}, AttackKeys: 50_000_000, KeyedRounds: 3, KeyedIdle: 2 * time.Second,
		RuleBatches: 16, Redis: 500 * time.Millisecond, RedisCount: 5,
		Durable: time.Second, DurableCount: 3, DurableCallers: 10_000,
		Wire: time.Second, WireCount: 5, WireKeys: wireManyKeys, WireIdle: 10_000,
	}
}

// busyEnough is how much of its processor a goroutine that never blocks must have had.
const busyEnough = 0.95

// attempts is how often one measurement is made at most.
const attempts = 4

// series are the measurements of one subject.
type series struct {
	nanos, allocs, busy []float64
	disturbed           bool
}

// Measure measures a row in rounds. In each round the subjects take turns, and each round starts with another one.
func (r Row) Measure(ctx context.Context, set Settings) (RowResult, error) {
	if err := r.check(); err != nil {
		return RowResult{}, err
	}
	subjects := r.subjects()
	calls := make([]int, len(subjects))
	all := make([]series, len(subjects))
	for i, s := range subjects {
		calls[i] = calibrate(s, r.Goroutines, set.Time, set.Meet)
	}
	repeats := set.Repeats
	for round := range set.Count {
		for turn := range subjects {
			if err := ctx.Err(); err != nil {
				return RowResult{}, err
			}
			i := (round + turn) % len(subjects)
			m := r.sample(i, calls[i], set.Meet, &repeats)
			if err := r.verify(subjects[i], m); err != nil && !r.isFloor(i) {
				return RowResult{}, err
			}
			all[i].add(m, r.disturbed(i, m))
		}
	}
	return r.result(subjects, all), nil
}

// sample measures the i-th subject, again if something else had its processor meanwhile and there are repeats left, and
// returns the measurement that had the most of it.
func (r Row) sample(i, calls int, meet time.Duration, repeats *int) (best sample) {
	subject := r.subjects()[i]
	for range attempts {
		runtime.GC()
		m := take(subject, r.Goroutines, calls, meet)
		if best.calls == 0 || m.apart && !best.apart || m.apart == best.apart && m.cpu > best.cpu {
			best = m
		}
		if !r.disturbed(i, m) || *repeats == 0 {
			break
		}
		*repeats--
	}
	return best
}

// disturbed reports whether the goroutines of the i-th subject had fewer processors than they could use, as they shared one or
// something else had it. Those of a peer may block each other, and then leave a processor idle, which is no fault of the
// measurement.
func (r Row) disturbed(i int, m sample) bool {
	blocks := r.Goroutines > 1 && r.isPeer(i)
	return !m.apart || !blocks && m.cpu < busyEnough*float64(min(r.Goroutines, processors()))
}

func (s *series) add(m sample, disturbed bool) {
	s.nanos = append(s.nanos, m.nanos())
	s.allocs = append(s.allocs, float64(m.mallocs)/float64(m.calls))
	s.busy = append(s.busy, m.cpu)
	s.disturbed = s.disturbed || disturbed
}

func (s *series) figure(of Subject) Figure {
	return Figure{
		By: of.By, Call: of.Call, Nanos: median(s.nanos), Spread: spread(s.nanos), Allocs: median(s.allocs),
		Busy: quantile(s.busy, 0),
	}
}

func (r Row) result(subjects []Subject, all []series) RowResult {
	res := RowResult{
		Name: r.Name, Goroutines: r.Goroutines, How: r.How, NoPeer: r.NoPeer, Most: r.Most, Undisturbed: true,
		Ours: all[0].figure(subjects[0]),
	}
	for i := range subjects {
		res.Undisturbed = res.Undisturbed && !all[i].disturbed
	}
	for _, f := range r.Floors {
		i := slices.IndexFunc(subjects, func(s Subject) bool { return s.By == f.By })
		f.Subject = subjects[i]
		res.Floors = append(res.Floors, compare(f, all[0].nanos, &all[i]))
	}
	for i, p := range r.Peers {
		res.Peers = append(res.Peers, all[len(all)-len(r.Peers)+i].figure(p))
	}
	return res
}

// compare compares weir with a floor, round by round.
func compare(f Floor, ours []float64, floor *series) Comparison {
	ratios := make([]float64, len(ours))
	for round := range ours {
		ratios[round] = ours[round] / floor.nanos[round]
	}
	c := Comparison{Figure: floor.figure(f.Subject), Ratio: median(ratios), RatioSpread: spread(ratios), Target: f.Target}
	c.Met = f.Target == 0 || c.Ratio <= f.Target
	return c
}
