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
				number("srv µs"), number("srv %"), number("cli %"), number("weir x"), number("target"),
			}}})
		}
		for _, f := range row.Servers {
			target := "-"
			if t := row.target(f.By); t > 0 {
				target = fmt.Sprintf("%.1f", t)
			}
			all[len(all)-1].Table.add(
				strconv.Itoa(row.AtOnce), floorName(f.By, f.Kind == string(redisFloor)), fmt.Sprintf("%.0f", f.PerSecond),
				percent(f.Spread), micros(f.P50), micros(f.P99), fmt.Sprintf("%.2f", f.Server), percent(f.ServerBusy),
				percent(f.ClientBusy), fmt.Sprintf("%.2f", f.Ratio), target,
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
	// Apart tells that this section was measured in a run of its own.
	Apart        bool
	Why          string
	MachineTable *table
	Warnings     []string
	Tables       []durableTableView

	Incr, Script, Bare           float64
	GRPC, GRPCFew                float64
	IncrPipeline, BarePipeline   int
	ScriptPipeline, GRPCInFlight int
	Burst, Period                int
}

// Any tells that there is something to show.
func (v wireView) Any() bool { return len(v.Tables) > 0 || v.Why != "" }

func (r Report) wireView() wireView {
	w := r.Wire
	v := wireView{
		Apart: !r.Whole, Why: w.Why, Incr: WireIncrTarget, Script: WireScriptTarget, Bare: WireBareTarget, GRPC: WireGRPCTarget,
		GRPCFew: WireGRPCFew, GRPCInFlight: WireGRPCInFlight,
		IncrPipeline: WireIncrPipeline, BarePipeline: WireBarePipeline, ScriptPipeline: WireScriptPipeline, Burst: wireBurst,
		Period: wirePeriod,
	}
	for _, t := range w.tables() {
		l := durableTableView{named: t}
		for _, row := range w.Rows {
			if row.Name == t.Name {
				l.How = row.How
			}
		}
		v.Tables = append(v.Tables, l)
	}
	if r.Machine.Busy() {
		v.Warnings = append(v.Warnings, fmt.Sprintf("the machine was busy with other work: load average %.2f on %d cores",
			r.Machine.Load, r.Machine.Cores))
	}
	if w.Siblings {
		v.Warnings = append(v.Warnings, "the two processors are threads of one core, and take from each other")
	}
	m := r.Machine
	t := &table{columns: []column{text("what"), text("which")}}
	t.add("processor", fmt.Sprintf("%s, %d cores: servers on number %d, the load generator on number %d", m.Processor, m.Cores,
		w.Server, w.Client))
	t.add("system", m.System)
	t.add("Go", m.Go+", GOMAXPROCS 1 for each process")
	t.add("measurement", fmt.Sprintf("%d interleaved rounds of %v for each server, after a warm-up of a fifth of it",
		r.Settings.WireCount, r.Settings.Wire))
	if m.Load >= 0 {
		t.add("load average at the start", fmt.Sprintf("%.2f", m.Load))
	}
	t.add("redis-server", w.Redis)
	for _, p := range w.Versions {
		t.add(p.Name, "`"+p.Module+"` "+p.Version)
	}
	v.MachineTable = t
	return v
}
