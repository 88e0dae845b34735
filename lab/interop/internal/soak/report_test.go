//go:build linux

package soak

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/bounds"
)

// told is the report of a run in which this happened to the permits of a shared bucket of 16, of which 8 come back in a second.
func told(t *testing.T, wrong ...bounds.Event) *Report {
	t.Helper()
	const ms = int64(time.Millisecond)
	r := &run{clocks: newClocks(), storm: &storm{did: map[string]int{"kill": 3}}}
	for _, p := range policies() {
		if p.name == "coherent-bucket" {
			r.all = []*policy{p}
		}
	}
	r.history = newHistory(r.clocks)
	r.traffic = newTraffic(r.all, nil, r.history, time.Second)
	events := make([]bounds.Event, 0, 11+len(wrong))
	for i := range int64(8) {
		events = append(events, bounds.Event{Sent: i * ms, Received: (i + 1) * ms, N: 2, Kind: bounds.Granted})
	}
	events = append(events,
		bounds.Event{Sent: 10 * ms, Received: 11 * ms, N: 2, Kind: bounds.Refused},
		bounds.Event{Sent: 12 * ms, Received: 13 * ms, N: 2, Kind: bounds.Refused},
		bounds.Event{Sent: 20 * ms, Received: 21 * ms, N: 1, Kind: bounds.Maybe})
	for _, e := range append(events, wrong...) {
		r.history.add(r.all[0], &r.all[0].limits[0], "hot", "n1", e)
		r.traffic.asked.Add(1)
	}
	return r.report(nil)
}

// TestReportCounts: a report has what clients saw, and is well if and only if no permit was minted or lost.
func TestReportCounts(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	good := told(t)
	want := PolicyTotals{
		Policy: "coherent-bucket", Scope: "coherent", Exact: true, Requests: 11, Granted: 16, Refused: 2, Unknown: 1, Buckets: 1,
		Allowed: good.Policies[0].Allowed,
	}
	if len(good.Policies) != 1 || good.Policies[0] != want || want.Allowed < 16 || want.Allowed > 16.1 || !good.OK || good.Requests != 11 || good.Faults["kill"] != 3 {
		t.Errorf("%+v", good)
	}
	var text bytes.Buffer
	good.Print(&text)
	for _, part := range []string{
		"11 requests", "coherent-bucket   coherent         11         16           16  100%        2        1      0      0\n",
		"faults: kill 3", "ok: 0 permits minted; 0 lost on exact policies\n",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, &text)
		}
	}
	minted := told(t, bounds.Event{Sent: 30 * ms, Received: 31 * ms, N: 2, Kind: bounds.Granted})
	lost := told(t, bounds.Event{Sent: 2000 * ms, Received: 2001 * ms, N: 2, Kind: bounds.Refused})
	if minted.OK || minted.Minted <= 1 || minted.Lost != 0 || len(minted.Failures) != 1 {
		t.Errorf("%+v", minted)
	}
	if lost.OK || lost.Lost <= 1 || lost.Minted != 0 || len(lost.Failures) != 1 {
		t.Errorf("%+v", lost)
	}
}

// TestGrowthIsJudged: whatever grows is a failure, and so is a long run in which nothing was measured.
func TestGrowthIsJudged(t *testing.T) {
	t.Parallel()
	measured := func(goroutines, files float64) []Usage {
		var m meter
		s := &samples{who: "n3, start 1", node: "n3"}
		for i := range 600 {
			s.all = append(s.all, sample{
				At: time.Duration(i) * time.Second, Memory: 100e6, Goroutines: 300 + goroutines*float64(i), Files: 50 + files*float64(i),
			})
		}
		m.all = append(m.all, s)
		return m.usage(5*time.Minute, 10*time.Minute)
	}
	unknown := measured(0, 0)
	unknown[0].Growth[1].First = -1
	for _, c := range []struct {
		name     string
		duration time.Duration
		usage    []Usage
		failures string
		notes    string
	}{
		{"flat", 10 * time.Minute, measured(0, 0), "", ""},
		{"goroutines", 10 * time.Minute, measured(1, 0), "goroutines of n3, start 1 grew from ", ""},
		{"files", 10 * time.Minute, measured(0, 1), "open_files of n3, start 1 grew from ", ""},
		{"nothing measured", 10 * time.Minute, nil, "of no node it can be told", ""},
		{"no goroutines", 10 * time.Minute, unknown, "of no node it can be told", ""},
		{"short", time.Minute, nil, "", "of a run of 8m0s and longer"},
	} {
		p := &Report{Duration: c.duration, Usage: c.usage}
		p.judgeGrowth()
		failures, notes := strings.Join(p.Failures, "\n"), strings.Join(p.Notes, "\n")
		if !strings.HasPrefix(failures, c.failures) || (failures == "") != (c.failures == "") || !strings.Contains(notes, c.notes) ||
			(notes == "") != (c.notes == "") {
			t.Errorf("%s: %q, %q", c.name, failures, notes)
		}
	}
}
