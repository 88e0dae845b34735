package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// wide is a report of all rows whose numbers take as much room as they may.
func wide(t *testing.T) Report {
	t.Helper()
	f := func(s Subject) Figure {
		return Figure{By: s.By, Call: s.Call, Nanos: 12345, Spread: 0.99, Allocs: 12, Busy: 1.99}
	}
	r := Report{Machine: ThisMachine(), Count: 11, Time: "50ms"}
	for _, row := range Rows() {
		res := RowResult{Name: row.Name, Goroutines: row.Goroutines, How: row.How, NoPeer: row.NoPeer, Ours: f(row.Ours)}
		for _, fl := range row.Floors {
			res.Floors = append(res.Floors, Comparison{f(fl.Subject), 12.34, 0.99, fl.Target, false})
		}
		for _, p := range row.Peers {
			res.Peers = append(res.Peers, f(p))
		}
		r.Rows = append(r.Rows, res)
	}
	for _, a := range AskedLimiters() {
		res := AdmissionResult{By: a.By, Call: a.Call, Allowed: a.Allowed}
		for _, perSecond := range AdmissionRates() {
			res.Rates = append(res.Rates, Admitted{perSecond, 999999, 1e5, 9.9999, false})
		}
		r.Admission = append(r.Admission, res)
	}
	limiters := cancelable(QueuedLimiters())
	waiters := make([]WaitersResult, 0, len(limiters))
	for _, q := range limiters {
		waiters = append(waiters, WaitersResult{q.By, q.Call, q.Floor, 12.345, 1000, 1000, 1000, 1234.5, 1000, 1000, 12.5, 12345})
	}
	for _, c := range crowds {
		r.Crowds = append(r.Crowds, CrowdResult{fmt.Sprintf("%d waiters", c.callers), c.budget.burst, waiters})
	}
	for _, s := range [][]streamed{streamsOf(streams[0]), streamsOfRelays()} {
		var all []StreamResult
		for _, one := range s {
			res := one.result
			res.PerSecond, res.Share, res.CPU, res.Allocs = 12345678, 0.5, 1234.56, 12.5
			all = append(all, res)
		}
		r.Streams = append(r.Streams, StreamTable{"64 waiters", all})
	}
	return r
}

func TestTablesFitTheTerminal(t *testing.T) {
	var b strings.Builder
	r := wide(t)
	for _, tab := range r.tables() {
		tab.writeText(&b)
	}
	lines := 0
	for line := range strings.Lines(b.String()) {
		lines++
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if lines < len(r.Rows)+len(r.Admission) {
		t.Errorf("the tables have %d lines", lines)
	}
}

// tables are all tables for the terminal.
func (r Report) tables() []*table {
	all := make([]*table, 0, 2+len(r.Crowds)+len(r.Streams))
	all = append(all, ratioTable(r.Rows), r.admissionTable())
	for _, c := range r.Crowds {
		all = append(all, c.table())
	}
	for _, s := range r.Streams {
		all = append(all, s.table())
	}
	return all
}

func TestTheTableShowsEveryRow(t *testing.T) {
	var text, document strings.Builder
	r := wide(t)
	r.WriteText(&text)
	if err := r.WriteMarkdown(&document); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		for where, s := range map[string]string{"the table": text.String(), "the document": document.String()} {
			if !strings.Contains(s, row.Name) {
				t.Errorf("%s does not show %q", where, row.Name)
			}
		}
		if !strings.Contains(document.String(), row.How) {
			t.Errorf("the document does not say how %q is measured", row.Name)
		}
		for _, p := range row.Peers {
			if !strings.Contains(document.String(), strings.ReplaceAll(p.Call, "|", `\|`)) {
				t.Errorf("the document does not show the call %s of %s", p.Call, p.By)
			}
		}
	}
	for _, v := range r.Machine.Versions {
		if !strings.Contains(document.String(), "`"+v.Module+"` "+v.Version) {
			t.Errorf("the document does not name the version of %s", v.Module)
		}
	}
	if !strings.Contains(text.String(), "MISSED:") || !strings.Contains(document.String(), "| NO |") {
		t.Error("missed targets are not shown")
	}
}

func TestTable(t *testing.T) {
	tab := &table{columns: []column{text("who"), number("ns")}}
	tab.add("a|b", "1.5")
	tab.add("µ", "1234")
	var b strings.Builder
	tab.writeText(&b)
	if want := "who   ns\na|b  1.5\nµ   1234\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	tab.writeMarkdown(&b)
	if want := "| who | ns |\n| --- | ---: |\n| a\\|b | 1.5 |\n| µ | 1234 |\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{nanos(5.04), "5.0"},
		{nanos(99.94), "99.9"},
		{nanos(123.4), "123"},
		{each(0.0004), "0"},
		{each(1), "1"},
		{each(2.25), "2.2"},
		{percent(0.126), "13%"},
		{yes(false), "NO"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestTheDocumentHasTheSharedSections writes those of limits in Redis, of durable limits and of servers.
func TestTheDocumentHasTheSharedSections(t *testing.T) {
	var b strings.Builder
	r := wideWire()
	r.Redis, r.Durable = wideRedis().Redis, wideDurable().Durable
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{
		"\n\n## Limits in Redis\n\nDecisions", "\n### Redis: hot key, wide\n", "| redis_rate, pipelined |",
		"\n\n## Durable limits\n", "\n### Durable: ", "\n\n## Servers\n\n`weir serve`", "\n### Servers: RESP\n",
		"\n### Servers: idle connections\n", "\n\n## Targets\n\n| target", "| redis, many keys, callers: 32, weir coherent >= 1.2 x best peer |",
		"\n| durable, ", "| wire, RESP, pipeline: 16, weir >= 1 x Redis INCR |", "| wire, RLS, open loop, in flight: 1024, p99.9 <= 1ms |",
	} {
		next := strings.Index(b.String()[at:], want)
		if next < 0 {
			t.Fatalf("the document does not contain %q, or not there:\n%s", want, b.String())
		}
		at += next
	}
	if strings.Contains(b.String(), "\n\n\n\n") {
		t.Errorf("empty lines:\n%s", b.String())
	}
	none := Report{Wire: WireReport{Why: "there is no second processor"}}
	b.Reset()
	if err := none.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "## Servers\n\nNot measured: there is no second processor.\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestGoals judges a report of known numbers.
func TestGoals(t *testing.T) {
	crowd := func(last, cpu float64) CrowdResult {
		return CrowdResult{Name: "1000 waiters", All: []WaitersResult{
			{By: byWeir, Last: last, CPU: cpu},
			{By: "one timer", Last: 0.55, CPU: 1, Floor: true},
			{By: byXTime, Last: 1, CPU: 40},
		}}
	}
	r := Report{
		Rows: []RowResult{{Name: "allow", Goroutines: 1, Floors: []Comparison{
			{Figure{By: "clock+CAS"}, 1.2, 0, 1.15, false}, {Figure{By: "other"}, 3, 0, 0, true},
		}}, {Name: "hot", Goroutines: 2, Most: 10, Ours: Figure{Nanos: 9.5}}},
		Admission: []AdmissionResult{
			{By: byWeir, Call: "Allow()", Rates: []Admitted{{1000, 0, 0, 1.005, true}}},
			{By: byXTime, Rates: []Admitted{{1000, 0, 0, 5, false}}},
		},
		Crowds: []CrowdResult{crowd(0.59, 4), crowd(0.61, 5)},
	}
	goals := r.Goals()
	got := make([]string, 0, len(goals))
	for _, g := range goals {
		got = append(got, fmt.Sprintf("%s: %s %s", g.Name, g.Found, yes(g.Met)))
	}
	want := []string{
		"allow, goroutines: 1, <= 1.15 x clock+CAS: 1.200 NO",
		"hot, goroutines: 2, <= 10 ns: 9.5 yes",
		"64 goroutines, Allow() at 1000/s, granted within 1 % of allowed: 1.0050 yes",
		"1000 waiters, last served <= 0.60 s: 0.590 s yes",
		"1000 waiters, CPU a wait <= 0.10 x x/time/rate: 0.10 yes",
		"1000 waiters, last served <= 0.60 s: 0.610 s NO",
		"1000 waiters, CPU a wait <= 0.10 x x/time/rate: 0.12 NO",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var b strings.Builder
	r.writeGoals(&b)
	if !strings.Contains(b.String(), "MISSED: 3 of 7 targets") {
		t.Errorf("got %s", b.String())
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		load float64
		busy bool
	}{{0.3, false}, {1, false}, {1.01, true}, {-1, false}} {
		if m := (Machine{Cores: 2, Load: c.load}); m.Busy() != c.busy {
			t.Errorf("with a load of %v on 2 cores, busy is %v", c.load, !c.busy)
		}
	}
	r := Report{
		Machine: Machine{Cores: 2, Load: 3},
		Rows:    []RowResult{{Name: "good", Goroutines: 1, Undisturbed: true}, {Name: "bad", Goroutines: 2}},
	}
	warnings := strings.Join(r.Warnings(), "\n")
	said := strings.Contains(warnings, "3.00 on 2 cores") && strings.Contains(warnings, "bad x2")
	if !said || strings.Contains(warnings, "good") {
		t.Errorf("got %s", warnings)
	}
}

// TestRun measures what a regular expression matches, and no more.
func TestRun(t *testing.T) {
	var measured []string
	r, err := Run(t.Context(), quick, regexp.MustCompile(`^refuse( x2)?$|64 goroutines: weir FixedWindow`), func(name string) {
		measured = append(measured, name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "refuse, refuse x2, 64 goroutines: weir FixedWindow.Allow()"; strings.Join(measured, ", ") != want || r.Whole {
		t.Errorf("measured %q, want %q; whole: %v", measured, want, r.Whole)
	}
	if len(r.Rows) != 2 || len(r.Admission) != 1 || len(r.Crowds) != 0 || len(r.Streams) != 0 {
		t.Errorf("got %+v", r)
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(encoded, &back); err != nil || back.Rows[0].Ours != r.Rows[0].Ours {
		t.Errorf("JSON does not come back: %v\n%s", err, encoded)
	}
	named := len(keyedSections()) + len(ruleSections()) + len(redisSections()) + len(durableSections()) + len(wireSections())
	if n := len(Names()); n != len(Rows())+len(AskedLimiters())+len(crowds)+len(streams)+1+named {
		t.Errorf("there are %d names", n)
	}
}

// TestRunGoesOnAfterAFailure: a section that fails costs itself only, and one that is interrupted ends the run.
func TestRunGoesOnAfterAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	good := func(_ context.Context, _ Settings, r *Report) error {
		r.Rows = append(r.Rows, RowResult{})
		return nil
	}
	all := []section{
		{"first", good},
		{"bad", func(context.Context, Settings, *Report) error { return io.ErrUnexpectedEOF }},
		{"second", good},
		{"interrupted", func(context.Context, Settings, *Report) error {
			cancel()
			return io.EOF
		}},
		{"never", good},
	}
	r, err := run(ctx, all, quick, regexp.MustCompile(""), func(string) {})
	if len(r.Rows) != 2 || r.Whole || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "bench: bad: ") {
		t.Errorf("%d rows, whole: %t, %v", len(r.Rows), r.Whole, err)
	}
}
