package bench

import (
	"fmt"
	"slices"
	"strconv"
)

// tables are those of the floors, of all loads, one for each with all numbers of callers and all clusters, and of idle limits.
func (r DurableReport) tables() (all []named) {
	if len(r.Floors) > 0 {
		all = append(all, named{"one durable write", r.floorTable()})
	}
	all = append(all, r.loadTables()...)
	if len(r.Idle) > 0 {
		all = append(all, named{"not used any more", r.idleTable()})
	}
	return all
}

func (r DurableReport) floorTable() *table {
	t := &table{columns: []column{
		text("where"), text("write"), number("writers"), number("writes/s"), number("±"), number("p50 µs"), number("p99 µs"),
	}}
	for _, f := range r.Floors {
		t.add(f.Kind, floorName(f.By, true), strconv.Itoa(f.Writers), fmt.Sprintf("%.0f", f.PerSecond), percent(f.Spread),
			micros(f.P50), micros(f.P99))
	}
	return t
}

func (r DurableReport) loadTables() (all []named) {
	for i := range r.Rows {
		row := &r.Rows[i]
		at := slices.IndexFunc(all, func(t named) bool { return t.Name == row.Name })
		if at < 0 {
			at, all = len(all), append(all, named{row.Name, &table{columns: []column{
				text("cluster"), number("x"), text("by"), number("grants/s"), number("±"), number("p50 µs"), number("p99 µs"),
				number("a write"), number("CPU µs"), number("x K=1"), number("of all."), text("<="),
			}}})
		}
		for _, f := range row.Figures {
			all[at].Table.add(
				row.Kind, strconv.Itoa(row.Callers), f.By, fmt.Sprintf("%.0f", f.PerSecond), percent(f.Spread), micros(f.P50),
				micros(f.P99), fmt.Sprintf("%.1f", float64(f.Granted)/float64(f.Writes)), fmt.Sprintf("%.2f", f.CPU),
				fmt.Sprintf("%.1f", f.Ratio), ofAllowed(f.Admitted), yes(f.Admitted <= 1),
			)
		}
	}
	return all
}

func (r DurableReport) idleTable() *table {
	t := &table{columns: []column{
		text("cluster"), number("x"), number("grants before"), number("writes before"), number("idle s"), number("writes"),
	}}
	for _, i := range r.Idle {
		t.add(i.Kind, strconv.Itoa(i.Callers), strconv.FormatInt(i.Granted, 10), strconv.FormatInt(i.Writes, 10),
			fmt.Sprintf("%.1f", i.Quiet), strconv.FormatInt(i.Idle, 10))
	}
	return t
}

// durableView is what the document shows of durable limits.
type durableView struct {
	sharedView

	Target, Every, Record int
}

func (r Report) durableView() durableView {
	d, how := r.Durable, map[string]string{}
	for _, row := range d.Rows {
		how[row.Name] = row.How
	}
	v := durableView{newSharedView(d.tables(), how, d.Versions,
		"measurement", fmt.Sprintf("%d interleaved rounds of %v for each K, after a warm-up of a third of it",
			r.Settings.DurableCount, r.Settings.Durable),
		"filesystem", d.Filesystem,
	), DurableTarget, localEvery, recordBytes}
	if d.Filesystem == unknownFilesystem {
		v.Warnings = append(v.Warnings, "it is not known whether the directory for temporary files is on a disk")
	}
	return v
}
