package bench

import (
	"fmt"
	"strconv"
)

// ofAllowed is a share of what may be granted, which is never rounded down to 1.
func ofAllowed(v float64) string {
	s := fmt.Sprintf("%.3f", v)
	if v > 1 && s == "1.000" {
		return fmt.Sprintf("%.7f", v)
	}
	return s
}

// perDecision is a number of commands, of which there may be far less than one.
func perDecision(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.0001:
		return "<.0001"
	case v < 0.1:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// tables are those of all loads, one for each with all numbers of callers.
func (r RedisReport) tables() (all []named) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if i == 0 || r.Rows[i-1].Name != row.Name {
			all = append(all, named{row.Name, &table{columns: []column{
				number("x"), text("by"), number("dec./s"), number("±"), number("p50 µs"), number("p99 µs"), number("cmds"),
				number("srv µs"), number("cli µs"), number("granted"), number("of all."), text("<="),
			}}})
		}
		for _, f := range row.Limiters {
			all[len(all)-1].Table.add(
				strconv.Itoa(row.Callers), floorName(f.By, f.Kind == string(redisFloor)), fmt.Sprintf("%.0f", f.PerSecond),
				percent(f.Spread), micros(f.P50), micros(f.P99), perDecision(f.Commands), fmt.Sprintf("%.2f", f.Server),
				fmt.Sprintf("%.2f", f.Client),
				strconv.FormatInt(f.Granted, 10), ofAllowed(f.Admitted), yes(f.Admitted <= 1),
			)
		}
	}
	return all
}

// redisView is what the document shows of limits in Redis.
type redisView struct {
	// Apart tells that this section was measured in a run of its own.
	Apart        bool
	MachineTable *table
	Warning      string
	Loads        []redisLoadView
	Peers        []Peer
	Target       int
	Timeout      string
	Every        int
}

// redisLoadView is a load with its table.
type redisLoadView struct {
	named

	How string
}

func (r Report) redisView() redisView {
	v := redisView{
		Apart: !r.Whole, Peers: RedisPeers(), Target: LeasedTarget, Timeout: redisTimeout.String(), Every: localEvery,
	}
	for _, t := range r.Redis.tables() {
		l := redisLoadView{named: t}
		for _, row := range r.Redis.Rows {
			if row.Name == t.Name {
				l.How = row.How
			}
		}
		v.Loads = append(v.Loads, l)
	}
	if r.Machine.Busy() {
		v.Warning = fmt.Sprintf("the machine was busy with other work: load average %.2f on %d cores", r.Machine.Load,
			r.Machine.Cores)
	}
	m := r.Machine
	t := &table{columns: []column{text("what"), text("which")}}
	t.add("processor", fmt.Sprintf("%s, %d cores, for the server and for the callers", m.Processor, m.Cores))
	t.add("Go", fmt.Sprintf("%s, GOMAXPROCS %d", m.Go, m.Threads))
	t.add("measurement", fmt.Sprintf("%d interleaved rounds of %v for each limiter, after a warm-up of a third of it",
		r.Settings.RedisCount, r.Settings.Redis))
	if m.Load >= 0 {
		t.add("load average at the start", fmt.Sprintf("%.2f", m.Load))
	}
	t.add("redis-server", r.Redis.Server)
	for _, p := range r.Redis.Versions {
		t.add(p.Name, "`"+p.Module+"` "+p.Version)
	}
	v.MachineTable = t
	return v
}
