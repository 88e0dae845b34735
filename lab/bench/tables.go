package bench

import (
	"fmt"
	"slices"
	"strconv"
)

// ratioTable compares weir with its floors and its best peer, in at most 100 columns.
func ratioTable(rows []RowResult) *table {
	t := &table{columns: []column{
		text("row"), number("go"), text("floor"), number("ns"), number("weir"), number("±"), number("ratio"),
		number("target"), text("met"), text("best peer"), number("ns"), number("al"),
	}}
	for _, row := range rows {
		for i, f := range row.Floors {
			target, met := "-", "-"
			if f.Target > 0 {
				target, met = fmt.Sprintf("%.2f", f.Target), yes(f.Met)
			}
			ratio := []string{
				f.By, nanos(f.Nanos), nanos(row.Ours.Nanos), percent(f.RatioSpread), fmt.Sprintf("%.2f", f.Ratio), target, met,
			}
			before := []string{row.Name, strconv.Itoa(row.Goroutines)}
			after := []string{"none", "", each(row.Ours.Allocs)}
			if best, ok := row.Best(); ok {
				after[0], after[1] = best.By, nanos(best.Nanos)
			}
			if i > 0 {
				before, after = []string{"", ""}, []string{"", "", ""}
			}
			t.add(append(append(before, ratio...), after...)...)
		}
	}
	return t
}

// everyTable is the whole of what was measured of each row.
func everyTable(rows []RowResult) *table {
	t := &table{columns: []column{
		text("row"), number("goroutines"), text("by"), text("call"), number("ns a call"), number("±"),
		number("allocations"), number("CPU / wall"),
	}}
	line := func(row RowResult, f Figure) {
		t.add(row.Name, strconv.Itoa(row.Goroutines), f.By, "`"+f.Call+"`", nanos(f.Nanos), percent(f.Spread), each(f.Allocs),
			fmt.Sprintf("%.2f", f.Busy))
	}
	for _, row := range rows {
		line(row, row.Ours)
		for _, f := range row.Floors {
			if !slices.ContainsFunc(row.Peers, func(p Figure) bool { return p.By == f.By }) {
				line(row, f.Figure)
			}
		}
		for _, p := range row.Peers {
			line(row, p)
		}
	}
	return t
}

func (r Report) admissionTable() *table {
	t := &table{columns: []column{text("by"), text("call")}}
	for _, perSecond := range AdmissionRates() {
		t.columns = append(t.columns, number(fmt.Sprintf("%d/s", perSecond)))
	}
	t.columns = append(t.columns, text("met"))
	for _, a := range r.Admission {
		cells := []string{a.By, a.Call}
		for _, m := range a.Rates {
			cells = append(cells, fmt.Sprintf("%.4f", m.Ratio))
		}
		t.add(append(cells, yes(a.Met()))...)
	}
	return t
}

func (c CrowdResult) table() *table {
	t := &table{columns: []column{
		text("by"), number("last s"), number("served"), number("overtaken"), number("> 1 permit"), number("CPU µs"),
		number("goroutines"), number("timers"), number("allocs"), number("bytes"),
	}}
	for _, w := range c.All {
		t.add(floorName(w.By, w.Floor), fmt.Sprintf("%.3f", w.Last), strconv.Itoa(w.Served), strconv.Itoa(w.Overtaken),
			strconv.Itoa(w.FarOvertaken), fmt.Sprintf("%.1f", w.CPU), strconv.Itoa(w.Goroutines), strconv.Itoa(w.Timers),
			each(w.Allocs), fmt.Sprintf("%.0f", w.Bytes))
	}
	return t
}

func (s StreamTable) table() *table {
	t := &table{columns: []column{
		text("by"), text("call"), number("waits/s"), number("of allowed"), number("CPU µs"), number("allocs"),
	}}
	for _, r := range s.All {
		share := "-"
		if r.Share > 0 {
			share = percent(r.Share)
		}
		t.add(floorName(r.By, r.Floor), r.Call, fmt.Sprintf("%.0f", r.PerSecond), share, fmt.Sprintf("%.2f", r.CPU),
			each(r.Allocs))
	}
	return t
}

func floorName(by string, floor bool) string {
	if floor {
		return by + " (floor)"
	}
	return by
}
