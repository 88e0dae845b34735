package bench

import (
	"context"
	"fmt"
)

// The targets of Keyed besides those of the rows.
const (
	// KeyedBytesTarget is how much memory a key may take, KeyedSightTarget how many nanoseconds its first sight.
	KeyedBytesTarget = 48
	KeyedSightTarget = 200
	// nearlyNone is how many allocations or scanned bytes a key may have that counts as none: those of segments, of
	// thousands of keys.
	nearlyNone = 0.05
)

// KeyedReport is what was measured of limiters of many keys.
type KeyedReport struct {
	Sizes    []KeyedSize    `json:"sizes,omitempty"`
	Refusals []KeyedSize    `json:"refusals,omitempty"`
	Sights   []FirstSight   `json:"first_sight,omitempty"`
	Growth   []KeyedPause   `json:"growth,omitempty"`
	Cleaning []KeyedPause   `json:"cleaning,omitempty"`
	Attacks  []AttackResult `json:"attacks,omitempty"`
}

// Empty tells that nothing of it was measured.
func (k KeyedReport) Empty() bool {
	return len(k.Sizes)+len(k.Refusals)+len(k.Sights)+len(k.Growth)+len(k.Cleaning)+len(k.Attacks) == 0
}

// Rows are the rows of all sizes.
func (k KeyedReport) Rows() (all []RowResult) {
	for _, sizes := range [][]KeyedSize{k.Sizes, k.Refusals} {
		for _, s := range sizes {
			all = append(all, s.Rows...)
		}
	}
	return all
}

func keyedSections() []section {
	size := func(i int) func(ctx context.Context, set Settings, r *Report) error {
		return func(ctx context.Context, set Settings, r *Report) error {
			w := keyedWork{keys: set.Keys[i], budget: drainedSlowly, collections: 5, loads: keyedLoads(set.Keys[i])}
			if i > 0 {
				set.Count, w.collections = (set.Count+1)/2, 2 // it takes minutes to fill and to collect ten million keys
			}
			result, err := w.measureAndFree(ctx, set)
			r.Keyed.Sizes = append(r.Keyed.Sizes, result)
			return err
		}
	}
	of := DefaultSettings()
	return []section{
		{"keyed, " + count(of.Keys[0]) + " keys: speed, memory, collection", size(0)},
		{"keyed, " + count(of.Keys[1]) + " keys: speed, memory, collection", size(1)},
		{"keyed, refusals", func(ctx context.Context, set Settings, r *Report) error {
			w := keyedWork{keys: set.Keys[0], budget: empty, refused: true, loads: keyedLoads(set.Keys[0])[:1]}
			result, err := w.measureAndFree(ctx, set)
			r.Keyed.Refusals = append(r.Keyed.Refusals, result)
			return err
		}},
		{"keyed, first sight", func(ctx context.Context, set Settings, r *Report) (err error) {
			r.Keyed.Sights, err = measureFirstSight(ctx, set, set.Keys[0])
			return err
		}},
		{"keyed, pauses of growth", func(ctx context.Context, set Settings, r *Report) (err error) {
			r.Keyed.Growth, err = measureGrowth(ctx, set, set.Keys[0])
			return err
		}},
		{"keyed, pauses of cleaning", func(ctx context.Context, set Settings, r *Report) (err error) {
			r.Keyed.Cleaning, err = measureCleaning(ctx, set, set.Keys[0])
			return err
		}},
		{"keyed, attack by new keys", func(ctx context.Context, set Settings, r *Report) (err error) {
			r.Keyed.Attacks, err = measureAttacks(ctx, set)
			return err
		}},
	}
}

func (w keyedWork) measureAndFree(ctx context.Context, set Settings) (KeyedSize, error) {
	defer func() {
		for _, l := range w.loads {
			l.keys.free()
		}
	}()
	return w.measure(ctx, set)
}

// goals are all numbers that Keyed is to hold.
func (k KeyedReport) goals() (all []Goal) {
	goal := func(met bool, found, format string, args ...any) {
		all = append(all, Goal{fmt.Sprintf(format, args...), met, found})
	}
	all = append(all, rowGoals(k.Rows())...)
	for _, row := range k.Rows() {
		goal(row.Ours.Allocs < nearlyNone, fmt.Sprintf("%.3f", row.Ours.Allocs), "%s, goroutines: %d, no allocation",
			row.Name, row.Goroutines)
	}
	for _, size := range k.Sizes {
		for _, m := range size.Memory {
			if m.By == byWeir {
				goal(m.Bytes <= KeyedBytesTarget, fmt.Sprintf("%.1f", m.Bytes), "%s keys, <= %d bytes a key", count(size.Keys),
					KeyedBytesTarget)
				goal(m.Scanned < nearlyNone*KeyedBytesTarget, fmt.Sprintf("%.2f", m.Scanned),
					"%s keys, nothing for the collector to scan", count(size.Keys))
			}
		}
	}
	for _, f := range k.Sights {
		if f.By == byWeir {
			goal(f.Nanos <= KeyedSightTarget, nanos(f.Nanos), "first sight of a key, <= %d ns", KeyedSightTarget)
			goal(f.Allocs < nearlyNone, fmt.Sprintf("%.3f", f.Allocs), "first sight of a key, no allocation")
		}
	}
	pause := func(what string, all []KeyedPause) {
		for _, p := range all {
			if p.By == byWeir {
				goal(p.Max <= float64(PauseTarget), micros(p.Max)+" µs", "longest call while %s keys %s, <= %v", count(p.Keys),
					what, PauseTarget)
			}
		}
	}
	pause("come", k.Growth)
	pause("are cleaned away", k.Cleaning)
	for _, r := range k.Attacks {
		if r.By != byWeir {
			continue
		}
		attack := func(met bool, found, format string, args ...any) {
			goal(met, found, "attack by %s keys, %s", count(r.Keys), fmt.Sprintf(format, args...))
		}
		attack(r.After <= AttackBytes, fmt.Sprintf("%.1f", r.After), "<= %d bytes a key of the bound", AttackBytes)
		attack(r.Peak <= 2*AttackBytes, fmt.Sprintf("%.1f", r.Peak), "<= %d with garbage", 2*AttackBytes)
		attack(r.Reset == 0, fmt.Sprint(r.Reset), "no spent key is reset")
		attack(r.HonestRefused == 0, fmt.Sprint(r.HonestRefused), "no honest call is refused")
		attack(r.P99 <= AttackTarget, fmt.Sprintf("%.2f", r.P99), "p99 of honest callers <= %d x", AttackTarget)
	}
	return all
}
