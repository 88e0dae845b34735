package summary

import (
	"fmt"
	"strings"
)

// limiter is a row of a summary: the names it has in the tables, and what it is told apart by where one library has two.
type limiter struct{ name, call string }

// figure is a column of a summary. The limiter is found in the column by of its table, and its call too if byCall is set.
type figure struct {
	head   string
	cell   cell
	byCall bool
}

// summary is a table of the page.
type summary struct {
	name     string // in the mark of its place
	limiters []limiter
	figures  []figure
}

// rowColumn is the column with the names of rows.
const rowColumn = "row"

const onTwo = "on 2 goroutines"

// summaries are the tables of the page.
func summaries() []summary {
	call := func(row, goroutines string) cell {
		return cell{"Every call", map[string]string{rowColumn: row, "goroutines": goroutines}, "ns a call"}
	}
	keys := func(row, goroutines string) cell {
		return cell{"Nanoseconds a call", map[string]string{rowColumn: row, "goroutines": goroutines}, "ns a call"}
	}
	held := func(keys, column string) cell {
		return cell{"What a key costs while it is held", map[string]string{"keys": keys}, column}
	}
	redis := func(load, callers, column string) cell {
		return cell{"Redis: " + load, map[string]string{"x": callers}, column}
	}
	return []summary{
		{
			"one call",
			[]limiter{
				{"weir", "TokenBucket.Allow()"},
				{"x/time/rate", "Limiter.Allow()"},
				{"uber", "Limiter.Take()"},
				{"juju", "Bucket.TakeAvailable(1)"},
				{"failsafe-go", "NewSmooth, TryAcquirePermit()"},
				{"go-limiter", "Store.Take(ctx, key)"},
				{"clock+CAS", ""},
			},
			[]figure{
				{"allow, ns", call("allow, always full", "1"), false},
				{onTwo, call("allow, always full", "2"), false},
				{"refuse, ns", call("refuse", "1"), false},
				{onTwo, call("refuse", "2"), false},
				{"granted / allowed", cell{"64 goroutines on one limiter", nil, "1000000/s"}, true},
			},
		},
		{
			"many keys",
			limitersOf("weir", "go-limiter", "throttled", "ulule", "httprate", "tollbooth", "mutex+map", "rwmutex+map",
				"sync.Map", "table+clock"),
			[]figure{
				{"1M keys, ns", keys("1M keys, uniform", "1"), false},
				{onTwo, keys("1M keys, uniform", "2"), false},
				{"10M keys, ns", keys("10M keys, uniform", "1"), false},
				{onTwo, keys("10M keys, uniform", "2"), false},
				{"bytes a key", held("10M", "bytes a key"), false},
				{"longest call, µs", cell{"Longest calls while keys come", nil, "longest µs"}, false},
			},
		},
		{
			"Redis",
			limitersOf("weir coherent", "weir leased", "weir optimistic", "redis_rate", "redis_rate, pipelined", "ulule",
				"ulule, pipelined", "throttled", "throttled, pipelined", "GCRA script (floor)"),
			[]figure{
				{"many keys, 32 callers", redis("many keys", "32", "dec./s"), false},
				{"256 callers", redis("many keys", "256", "dec./s"), false},
				{"hot key, 32 callers", redis("hot key", "32", "dec./s"), false},
				{"256 callers", redis("hot key", "256", "dec./s"), false},
				{"its p99, µs", redis("hot key", "256", "p99 µs"), false},
			},
		},
	}
}

func limitersOf(names ...string) (all []limiter) {
	for _, name := range names {
		all = append(all, limiter{name: name})
	}
	return all
}

// value finds the figure of a limiter.
func (f figure) value(r rawTables, l limiter) (string, error) {
	c := f.cell.by(l.name)
	if f.byCall {
		c.want["call"] = l.call
	}
	return r.find(c)
}

// markdown is the table as the page has it.
func (s summary) markdown(r rawTables) (string, error) {
	var b strings.Builder
	b.WriteString("|  |")
	for _, f := range s.figures {
		b.WriteString(" " + f.head + " |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(s.figures)) + "\n")
	for _, l := range s.limiters {
		b.WriteString("| " + l.name + " |")
		some := false
		for _, f := range s.figures {
			text, err := f.value(r, l)
			if err != nil {
				return "", err
			}
			some = some || text != ""
			if text == "" {
				text = "-"
			}
			b.WriteString(" " + text + " |")
		}
		if !some {
			return "", fmt.Errorf("summary: %s: %q is in no table", s.name, l.name)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
