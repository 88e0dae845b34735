package bench

import (
	"context"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestMain makes a process a node of a cluster if a test has started it as one.
func TestMain(m *testing.M) {
	if ServeMember() {
		return
	}
	os.Exit(m.Run())
}

// TestDurableSections measures all rows of durable limits, with a cluster of three processes, for too short a time to learn anything.
func TestDurableSections(t *testing.T) {
	set := quick
	set.Durable, set.DurableCount, set.DurableCallers = 20*time.Millisecond, 1, 300
	r, err := Run(t.Context(), set, regexp.MustCompile("^"+durablePrefix), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Durable.Rows) != len(durableLoads()) || len(r.Durable.Floors) != 5 || len(r.Durable.Idle) != 2 {
		t.Errorf("%d rows, %d floors, %d idle", len(r.Durable.Rows), len(r.Durable.Floors), len(r.Durable.Idle))
	}
	for _, row := range r.Durable.Rows {
		if len(row.Figures) != len(durableSubjects()) {
			t.Errorf("%s: %d figures", row.Name, len(row.Figures))
		}
		for _, f := range row.Figures {
			if f.PerSecond <= 0 || f.P50 <= 0 || f.P99 < f.P50 || f.Granted < int64(row.Callers) || f.Writes <= 0 || f.CPU <= 0 || f.Admitted <= 0 {
				t.Errorf("%s, %s, %d callers: %+v", row.Name, row.Kind, row.Callers, f)
			}
			if f.Admitted > 1 {
				t.Errorf("%s, %s, %d callers: %s granted more than is allowed: %v", row.Name, row.Kind, row.Callers, f.By, f.Admitted)
			}
			if f.By == byOne && row.Callers == 1 && f.Writes < f.Granted {
				t.Errorf("%s, %s: %d writes for %d grants to one caller with a K of 1", row.Name, row.Kind, f.Writes, f.Granted)
			}
			if f.By == byAdaptive && f.Writes > f.Granted {
				t.Errorf("%s, %s: %d writes for %d grants", row.Name, row.Kind, f.Writes, f.Granted)
			}
		}
	}
	for _, i := range r.Durable.Idle {
		if i.Idle != 0 || i.Writes == 0 || i.Granted == 0 {
			t.Errorf("idle: %+v", i)
		}
	}
	for _, f := range r.Durable.Floors {
		if f.PerSecond <= 0 || f.P50 <= 0 || f.P99 < f.P50 {
			t.Errorf("%+v", f)
		}
	}
	if r.Durable.Filesystem == "" || r.Durable.Filesystem == inMemory {
		t.Errorf("the filesystem %q", r.Durable.Filesystem)
	}
}

// TestDurableClusterEnds looks at what is left of a cluster.
func TestDurableClusterEnds(t *testing.T) {
	c, err := startCluster(t.Context(), threeNodes)
	if err != nil {
		t.Fatal(err)
	}
	dir, members := c.dir, c.members
	c.close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
	for _, m := range members {
		if m.ProcessState == nil || !m.ProcessState.Success() {
			t.Errorf("a member has ended with %v", m.ProcessState)
		}
	}
	(*durableCluster)(nil).close()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := startCluster(canceled, oneNode); err == nil {
		t.Error("a cluster was started although its context is canceled")
	}
}

// TestDurableWrongAnswersAreNoFigures looks at measurements that measured something else.
func TestDurableWrongAnswersAreNoFigures(t *testing.T) {
	l := durableLoad{callers: 2, budget: busyBudget}
	for _, c := range []struct {
		what string
		m    durableSample
		ok   bool
	}{
		{"all written", durableSample{wall: time.Second, granted: 10, writes: 10}, true},
		{"nothing written", durableSample{wall: time.Second, granted: 10}, false},
		{"a caller that was never answered", durableSample{wall: time.Second, granted: 1, writes: 1}, false},
	} {
		if err := l.verify(durableSubjects()[0], c.m); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestDurableCountsWhatWasGranted: what was granted beyond the limit, or beyond what the limit has counted, shows.
func TestDurableCountsWhatWasGranted(t *testing.T) {
	l := durableLoad{budget: budget{10, time.Second, 100}}
	for _, c := range []struct {
		granted, taken int64
		want           float64
	}{{99, 100, 0.9}, {121, 120, 1.1}, {60, 40, 60 / 51.0}} {
		m := durableSample{wall: time.Second, since: time.Second, granted: c.granted, taken: c.taken}
		if got := m.admitted(l); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("granted %d, counted %d: %v, want %v", c.granted, c.taken, got, c.want)
		}
	}
}

// wideDurable is a report of all rows whose numbers take as much room as they may.
func wideDurable() Report {
	r := Report{Settings: DefaultSettings(), Durable: DurableReport{
		Filesystem: "ext4", Versions: []ModuleVersion{{"a", "b", "v1"}},
		Idle: []DurableIdle{{threeNodes, 32, 123_456_789, 123_456, 6, 1}},
	}}
	for _, w := range floorWriters() {
		r.Durable.Floors = append(r.Durable.Floors, DurableFloor{bySync, threeNodes, w, 123456, 0.99, 1.2e9, 2.3e9})
	}
	for _, l := range durableLoads() {
		all := make([][]durableSample, len(durableSubjects()))
		for i := range all {
			all[i] = []durableSample{{
				wall: time.Second, since: time.Second, granted: 12_345_678, taken: 12_345_600, latency: Latency{Median: 1.2e9, P99: 2.3e9},
				writes: 1_234_567, cpu: time.Hour,
			}}
		}
		r.Durable.Rows = append(r.Durable.Rows, l.result(durableSubjects(), all))
	}
	return r
}

func TestDurableTablesFitTheTerminal(t *testing.T) {
	var b strings.Builder
	for _, tab := range wideDurable().Durable.tables() {
		tab.Table.writeText(&b)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 105 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestDurableGoals judges a report of known numbers.
func TestDurableGoals(t *testing.T) {
	l := durableLoad{name: "a", kind: oneNode, callers: 1, budget: busyBudget}
	series := func(granted ...int64) (all []durableSample) {
		for _, n := range granted {
			all = append(all, durableSample{wall: time.Second, since: time.Second, granted: n, taken: n, writes: 1})
		}
		return all
	}
	res := l.result(durableSubjects(), [][]durableSample{series(10, 20, 30), series(2000, 1900, 9000)})
	r := DurableReport{Rows: []DurableResult{res}, Idle: []DurableIdle{{oneNode, 32, 5, 5, 2, 0}, {threeNodes, 32, 5, 5, 2, 3}}}
	var got []string
	for _, g := range r.goals() {
		got = append(got, strings.TrimPrefix(g.Name, durablePrefix)+": "+g.Found+" "+yes(g.Met))
	}
	want := []string{
		"a, one node, callers: 1, K = 1, granted <= allowed: 0.732 yes",
		"a, one node, callers: 1, K adaptive >= 100 x K = 1: 200 yes",
		"a, one node, callers: 1, K adaptive, granted <= allowed: 0.999 yes",
		"idle, one node, no writes in 2 s: 0 yes",
		"idle, three nodes, no writes in 2 s: 3 NO",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
