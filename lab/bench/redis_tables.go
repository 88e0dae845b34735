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
	sharedView

	Peers         []Peer
	Target, Every int
	Coherent      float64
	Timeout       string
}

func (r Report) redisView() redisView {
	how := map[string]string{}
	for _, row := range r.Redis.Rows {
		how[row.Name] = row.How
	}
	return redisView{newSharedView(r.Redis.tables(), how, r.Redis.Versions,
		"measurement", fmt.Sprintf("%d interleaved rounds of %v for each limiter, after a warm-up of a third of it",
			r.Settings.RedisCount, r.Settings.Redis),
		"redis-server", r.Redis.Server,
	), RedisPeers(), LeasedTarget, localEvery, CoherentTarget, redisTimeout.String()}
}
