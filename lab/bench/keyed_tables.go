package bench

import (
	"fmt"
	"slices"
	"strconv"
)

// micros is a duration of nanoseconds in microseconds.
func micros(ns float64) string {
	us := ns / 1000
	switch {
	case us >= 100:
		return fmt.Sprintf("%.0f", us)
	case us >= 1:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.2f", us)
}

func (k KeyedReport) memoryTable() *table {
	t := &table{columns: []column{
		text("keys"), text("by"), number("bytes a key"), number("x weir"), number("scanned"), number("GC CPU ms"),
		number("GC wall ms"),
	}}
	for _, size := range k.Sizes {
		ours := size.Memory[0].Bytes
		for _, m := range size.Memory {
			t.add(count(size.Keys), floorName(m.By, m.Floor), fmt.Sprintf("%.1f", m.Bytes), fmt.Sprintf("%.2f", m.Bytes/ours),
				fmt.Sprintf("%.1f", m.Scanned), fmt.Sprintf("%.1f", m.CPU), fmt.Sprintf("%.1f", m.Wall))
		}
	}
	return t
}

func (k KeyedReport) sightTable() *table {
	t := &table{columns: []column{
		text("by"), number("ns a key"), number("±"), number("CPU ns"), number("allocations"), number("bytes"),
		number("faults/1000"),
	}}
	for _, f := range k.Sights {
		t.add(floorName(f.By, f.Floor), nanos(f.Nanos), percent(f.Spread), nanos(f.CPU), fmt.Sprintf("%.2f", f.Allocs),
			fmt.Sprintf("%.0f", f.Bytes), fmt.Sprintf("%.1f", f.Faults))
	}
	return t
}

func pauseTable(all []KeyedPause, kept bool) *table {
	t := &table{columns: []column{
		text("by"), number("calls"), number("p50 µs"), number("p99.99 µs"), number("longest µs"), number("worst µs"),
	}}
	if kept {
		t.columns = append(t.columns, number("heap kept"))
	}
	for _, p := range all {
		cells := []string{
			floorName(p.By, p.Floor), strconv.FormatInt(p.Calls, 10), micros(p.Median), micros(p.P9999), micros(p.Max),
			micros(p.Worst),
		}
		switch {
		case kept && p.Kept < 0:
			cells = append(cells, "-")
		case kept:
			cells = append(cells, percent(p.Kept))
		}
		t.add(cells...)
	}
	return t
}

func (k KeyedReport) attackTable() *table {
	t := &table{columns: []column{
		text("by"), number("keys"), number("s"), number("bytes before"), number("after"), number("peak"), number("spent"),
		number("reset"),
		number("honest"), number("refused"),
	}}
	for _, r := range k.Attacks {
		t.add(r.By, count(r.Keys), fmt.Sprintf("%.1f", r.Seconds), fmt.Sprintf("%.1f", r.Before), fmt.Sprintf("%.1f", r.After),
			fmt.Sprintf("%.1f", r.Peak), strconv.Itoa(r.Exhausted), strconv.Itoa(r.Reset), strconv.FormatInt(r.Honest, 10),
			strconv.FormatInt(r.HonestRefused, 10))
	}
	return t
}

func (k KeyedReport) honestTable() *table {
	t := &table{columns: []column{
		text("by"), text("honest callers"), number("p50 ns"), number("p99 ns"), number("p99.99 µs"), number("longest µs"),
		number("x p50"), number("x p99"),
	}}
	for _, r := range k.Attacks {
		line := func(when string, l Latency, ratios ...string) {
			cells := make([]string, 8)
			copy(cells, []string{r.By, when, nanos(l.Median), nanos(l.P99), micros(l.P9999), micros(l.Max)})
			copy(cells[6:], ratios)
			t.add(cells...)
		}
		line("clock alone", r.Clock)
		line("without attack", r.Alone)
		line("attack on another", r.Beside)
		line("under attack", r.Under, fmt.Sprintf("%.2f", r.Median), fmt.Sprintf("%.2f", r.P99))
	}
	return t
}

// tables are those that were measured, with their headings.
func (k KeyedReport) tables() (all []named) {
	v := k.view()
	add := func(name string, t *table) {
		if t != nil {
			all = append(all, named{name, t})
		}
	}
	add("Many keys: nanoseconds a call", v.Ratios)
	add("Many keys: what a key costs while it is held", v.Memory)
	add("Many keys: what a key costs when it comes", v.Sights)
	add("Many keys: longest calls while keys come", v.Growth)
	add("Many keys: longest calls while keys are cleaned away", v.Cleaning)
	add("Many keys: attack by new keys, memory and state", v.Attacks)
	add("Many keys: attack by new keys, honest callers", v.Honest)
	return all
}

// keyedView is what the document shows of limiters of many keys. A table of what was not measured is nil.
type keyedView struct {
	Any                                                              bool
	Rows                                                             []RowResult
	Ratios, Every, Memory, Sights, Growth, Cleaning, Attacks, Honest *table
	Janitors                                                         []KeyedPause
	Peers                                                            []Peer
	Losses                                                           []string
	Zipf                                                             float64
	HonestKeys, SpentKeys                                            int
	AttackKeys, MaxKeys                                              string
}

func (k KeyedReport) view() keyedView {
	some := func(t *table) *table {
		if len(t.rows) == 0 {
			return nil
		}
		return t
	}
	v := keyedView{
		Any: !k.Empty(), Rows: k.Rows(), Ratios: some(ratioTable(k.Rows())), Every: some(everyTable(k.Rows())),
		Memory: some(k.memoryTable()), Sights: some(k.sightTable()), Growth: some(pauseTable(k.Growth, false)),
		Cleaning: some(pauseTable(k.Cleaning, true)), Attacks: some(k.attackTable()), Honest: some(k.honestTable()),
		Peers: KeyedPeers(), Losses: k.losses(), Zipf: zipfExponent, HonestKeys: honestKeys, SpentKeys: spentKeys,
	}
	for _, p := range k.Cleaning {
		if !p.Floor {
			v.Janitors = append(v.Janitors, p)
		}
	}
	for _, r := range k.Attacks {
		if r.By == byWeir {
			v.AttackKeys, v.MaxKeys = count(r.Keys), count(r.MaxKeys)
		}
	}
	return v
}

// losses are the numbers in which a peer is ahead of weir.
func (k KeyedReport) losses() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, row := range k.Rows() {
		for _, p := range row.Peers {
			if p.Nanos < row.Ours.Nanos {
				say("%s, goroutines: %d: %s takes %s ns a call, weir %s", row.Name, row.Goroutines, p.By, nanos(p.Nanos),
					nanos(row.Ours.Nanos))
			}
		}
	}
	for _, size := range k.Sizes {
		for _, m := range size.Memory[1:] {
			if ours := size.Memory[0]; !m.Floor && m.Bytes < ours.Bytes {
				say("%s keys: %s takes %.1f bytes a key, weir %.1f", count(size.Keys), m.By, m.Bytes, ours.Bytes)
			}
		}
	}
	for i := 1; i < len(k.Sights); i++ {
		if ours, f := k.Sights[0], k.Sights[i]; !f.Floor && f.Nanos < ours.Nanos {
			say("first sight: %s takes %s ns a key, weir %s", f.By, nanos(f.Nanos), nanos(ours.Nanos))
		}
	}
	for what, pauses := range map[string][]KeyedPause{"keys come": k.Growth, "keys are cleaned away": k.Cleaning} {
		for i := 1; i < len(pauses); i++ {
			if ours, p := pauses[0], pauses[i]; !p.Floor && p.Max < ours.Max {
				say("while %s, the longest call of %s takes %s µs, that of weir %s", what, p.By, micros(p.Max), micros(ours.Max))
			}
		}
	}
	slices.Sort(all)
	return all
}
