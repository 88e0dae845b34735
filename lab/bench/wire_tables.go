package bench

import (
	"fmt"
	"strconv"
)

// tables are those of all loads, one for each with all numbers of requests at once, of keys, and of idle connections.
func (r WireReport) tables() (all []named) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if i == 0 || r.Rows[i-1].Name != row.Name {
			all = append(all, named{row.Name, &table{columns: []column{
				number(row.atOnce()), text("by"), number("requests/s"), number("±"), number("p50 µs"), number("p99 µs"),
				number("p99.9 µs"), number("srv µs"), number("srv %"), number("cli %"), number("weir x"), number("target"),
			}}})
		}
		for _, f := range row.Servers {
			target := "-"
			if least := row.targets.least[f.By]; least > 0 {
				target = fmt.Sprintf("%g", least)
			}
			all[len(all)-1].Table.add(
				strconv.Itoa(row.AtOnce), floorName(f.By, f.Kind == string(redisFloor)), fmt.Sprintf("%.0f", f.PerSecond),
				percent(f.Spread), micros(f.P50), micros(f.P99), micros(f.P999), fmt.Sprintf("%.2f", f.Server),
				percent(f.ServerBusy), percent(f.ClientBusy), fmt.Sprintf("%.2f", f.Ratio), target,
			)
		}
	}
	if len(r.Memory) > 0 {
		all = append(all, named{"bytes a key", r.memoryTable()})
	}
	if len(r.Idle) > 0 {
		all = append(all, named{"idle connections", r.idleTable()})
	}
	return all
}

// wholeBytes is a number of bytes.
func wholeBytes(v float64) string { return fmt.Sprintf("%.0f", v) }

func (r WireReport) memoryTable() *table {
	t := &table{columns: []column{
		text("by"), number("keys"), number("bytes a key"), number("by its own account"), number("after the load"),
	}}
	for _, m := range r.Memory {
		t.add(m.By, count(m.Keys), wholeBytes(m.Filled), wholeBytes(m.Used), wholeBytes(m.After))
	}
	return t
}

func (r WireReport) idleTable() *table {
	t := &table{columns: []column{
		text("by"), number("connections"), number("bytes each, opened"), number("bytes each, used once"),
	}}
	for _, i := range r.Idle {
		by := i.By
		if by == byIncr {
			by = "Redis"
		}
		t.add(floorName(by, by == byBareRESP), count(i.Connections), wholeBytes(i.Opened), wholeBytes(i.Asked))
	}
	return t
}

// wireView is what the document shows of servers.
type wireView struct {
	sharedView

	Why           string
	Burst, Period int
}

// Any reports whether there is something to show.
func (v wireView) Any() bool { return len(v.Tables) > 0 || v.Why != "" }

func (r Report) wireView() wireView {
	w, how := r.Wire, map[string]string{}
	for _, row := range w.Rows {
		how[row.Name] = row.How
	}
	v := wireView{newSharedView(w.tables(), how, w.Versions,
		"processors", fmt.Sprintf("servers on number %d, the load generator on number %d", w.Server, w.Client),
		"Go", "GOMAXPROCS 1 for each process",
		"measurement", fmt.Sprintf("%d interleaved rounds of %v for each server, after a warm-up of a fifth of it",
			r.Settings.WireCount, r.Settings.Wire),
		"redis-server", w.Redis,
	), w.Why, wireBurst, wirePeriod}
	if w.Siblings {
		v.Warnings = append(v.Warnings, "the two processors are threads of one core, and take from each other")
	}
	return v
}
