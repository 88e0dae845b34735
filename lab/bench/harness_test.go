package bench

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// quick measures nothing worth knowing, fast.
var quick = Settings{
	Time: 50 * time.Microsecond, Count: 1, Wall: 10 * time.Millisecond, WallCount: 1, Meet: time.Millisecond,
}

func TestEveryRowIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		if err := r.check(); err != nil {
			t.Error(err)
		}
		if seen[r.ID()] {
			t.Errorf("there are two rows %q", r.ID())
		}
		seen[r.ID()] = true
		for _, s := range r.subjects() {
			if s.By == "" || s.Call == "" {
				t.Errorf("row %q: a subject has no name or call: %q, %q", r.ID(), s.By, s.Call)
			}
		}
	}
	for _, name := range []string{"allow, always full", "allow, always full x2", "refuse", "refuse x2"} {
		if !seen[name] {
			t.Errorf("row %q is missing", name)
		}
	}
}

func TestIncompleteRows(t *testing.T) {
	row := Rows()[0]
	for what, change := range map[string]func(r *Row){
		"no floor":              func(r *Row) { r.Floors = nil },
		"no peer and no reason": func(r *Row) { r.Peers = nil },
		"a peer and a reason":   func(r *Row) { r.NoPeer = "none" },
		"no name":               func(r *Row) { r.Name = "" },
		"no goroutine":          func(r *Row) { r.Goroutines = 0 },
	} {
		r := row
		change(&r)
		if _, err := r.Measure(t.Context(), quick); err == nil {
			t.Errorf("a row with %s was measured", what)
		}
	}
}

// TestEveryRow measures every row, so that each subject is known to answer as its row says.
func TestEveryRow(t *testing.T) {
	for _, r := range Rows() {
		t.Run(r.ID(), func(t *testing.T) {
			res, err := r.Measure(t.Context(), quick)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Floors) != len(r.Floors) || len(res.Peers) != len(r.Peers) {
				t.Fatalf("%d floors and %d peers, want %d and %d", len(res.Floors), len(res.Peers), len(r.Floors), len(r.Peers))
			}
			figures := append([]Figure{res.Ours}, res.Peers...)
			for i, f := range res.Floors {
				figures = append(figures, f.Figure)
				if f.Target != r.Floors[i].Target || f.Ratio <= 0 {
					t.Errorf("ratio to %s is %v with target %v, want target %v", f.By, f.Ratio, f.Target, r.Floors[i].Target)
				}
			}
			for _, f := range figures {
				if !(f.Nanos > 0) || math.IsInf(f.Nanos, 0) {
					t.Errorf("%s takes %v ns", f.By, f.Nanos)
				}
			}
			if res.Ours.By != byWeir {
				t.Errorf("ours is %q", res.Ours.By)
			}
		})
	}
}

// TestWrongAnswersAreNoFigures measures a limiter that refuses in a row where all is to be granted, and the other way
// round.
func TestWrongAnswersAreNoFigures(t *testing.T) {
	r := Rows()[0]
	r.Ours = drained(weirAllow(empty))
	if _, err := r.Measure(t.Context(), quick); err == nil || !strings.Contains(err.Error(), "weir granted 0 of") {
		t.Errorf("refusals where all is to be granted: %v", err)
	}
	r = Rows()[0]
	r.Refused = true
	if _, err := r.Measure(t.Context(), quick); err == nil || !strings.Contains(err.Error(), "should have been refused") {
		t.Errorf("grants where all is to be refused: %v", err)
	}
}

func TestMeasureStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Rows()[0].Measure(ctx, quick); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled measurement answered %v", err)
	}
}

// TestRatios compares series whose ratios are known.
func TestRatios(t *testing.T) {
	floor := &series{nanos: []float64{10, 20, 40}, allocs: []float64{0, 0, 0}, busy: []float64{1, 1, 1}}
	// The machine halves its speed twice, for all alike, so that the ratio is 1.1, 1.2 and 1.1.
	ours := []float64{11, 24, 44}
	for _, c := range []struct {
		target float64
		met    bool
	}{{1.15, true}, {1.1, true}, {1.09, false}, {0, true}} {
		got := compare(Floor{Target: c.target}, ours, floor)
		if math.Abs(got.Ratio-1.1) > 1e-12 || got.Nanos != 20 || got.Met != c.met {
			t.Errorf("target %v: ratio %v to %v ns, met %v; want 1.1 to 20 ns, met %v",
				c.target, got.Ratio, got.Nanos, got.Met, c.met)
		}
	}
	row := Row{Floors: []Floor{{Subject: Subject{By: "floor"}, Target: 2}}, Peers: []Subject{{By: "slow"}, {By: "fast"}}}
	all := []series{
		{nanos: ours, allocs: []float64{1, 1, 1}, busy: []float64{1, 0.5, 1}},
		*floor,
		{nanos: []float64{90, 90, 90}},
		{nanos: []float64{50, 50, 50}, disturbed: true},
	}
	res := row.result(append([]Subject{{By: byWeir}}, row.subjects()[1:]...), all)
	best, ok := res.Best()
	if !ok || best.By != "fast" || best.Nanos != 50 {
		t.Errorf("the best peer is %+v", best)
	}
	if res.Ours.Nanos != 24 || res.Ours.Allocs != 1 || res.Ours.Busy != 0.5 || res.Undisturbed {
		t.Errorf("got %+v", res)
	}
	if _, ok := (RowResult{}).Best(); ok {
		t.Error("there is a best of no peers")
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values         []float64
		median, spread float64
	}{
		{nil, 0, 0},
		{[]float64{7}, 7, 0},
		{[]float64{3, 1}, 2, 0.25},
		{[]float64{5, 1, 4, 2, 3}, 3, 1.0 / 3},
		{[]float64{10, 10, 10, 1000}, 10, 12.375},
	} {
		if m, s := median(c.values), spread(c.values); m != c.median || math.Abs(s-c.spread) > 1e-12 {
			t.Errorf("median and spread of %v are %v and %v, want %v and %v", c.values, m, s, c.median, c.spread)
		}
	}
}

// TestTogetherMakesEveryCall counts the calls of goroutines that share a number which is no multiple of a batch.
func TestTogetherMakesEveryCall(t *testing.T) {
	const n = 3*batch + 17
	for _, goroutines := range []int{1, 2, 3} {
		s := clockAndSwap()
		if m := take(s, goroutines, n, time.Millisecond); m.calls != n || m.granted != n || m.wall <= 0 {
			t.Errorf("%d goroutines: %d calls, %d granted, in %v; want %d", goroutines, m.calls, m.granted, m.wall, n)
		}
	}
}

// TestMeetingTellsWhoIsApart puts goroutines in places.
func TestMeetingTellsWhoIsApart(t *testing.T) {
	for _, c := range []struct {
		processors []int64
		apart      bool
	}{
		{[]int64{0, 0}, false},
		{[]int64{1, 0}, false},
		{[]int64{2, 2}, false},
		{[]int64{1, 2}, true},
		{[]int64{-1, -2}, true},
		{[]int64{1, 2, 1}, false},
		{[]int64{3, 2, 1}, true},
	} {
		m := newMeeting(len(c.processors), time.Second)
		for i, p := range c.processors {
			m.places[i].processor.Store(p)
		}
		if m.apart() != c.apart {
			t.Errorf("on processors %v, apart is %v", c.processors, !c.apart)
		}
	}
}

func TestBudgets(t *testing.T) {
	for b, want := range map[budget]time.Duration{
		alwaysFull:                         time.Microsecond,
		draining:                           10_000_000 * time.Second,
		empty:                              24 * time.Hour,
		{windowLimit, window, windowLimit}: window,
	} {
		if got := b.refill(); got != want {
			t.Errorf("%+v is full again after %v, want %v", b, got, want)
		}
	}
	if awkward.weir().Stats().Remaining != awkward.burst {
		t.Error("a new bucket is not full")
	}
	if d := drained(weirAllow(empty)); d.By != byWeir {
		t.Error("drained changes the name")
	}
}

func TestPeersAreInTheTables(t *testing.T) {
	used := map[string]bool{}
	for _, r := range Rows() {
		for _, p := range r.Peers {
			used[p.By] = true
		}
	}
	peers := Peers()
	known := make([]string, 0, len(peers)+1)
	known = append(known, byChannel)
	for _, p := range peers {
		known = append(known, p.Name)
		if !used[p.Name] {
			t.Errorf("%s is in no row", p.Name)
		}
		if p.Differs == "" || p.Module == "" {
			t.Errorf("%s: not said where it is from and what differs", p.Name)
		}
	}
	for name := range used {
		if !slices.Contains(known, name) {
			t.Errorf("%q is in the rows, but is not said to be a peer", name)
		}
	}
}

func TestVersions(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "golang.org/x/time", Version: "v1.2.3"},
		{
			Path: "github.com/juju/ratelimit", Version: "v1.0.0",
			Replace: &debug.Module{Path: "github.com/juju/ratelimit", Version: "v2.0.0"},
		},
		{Path: "example.com/other", Version: "v9.9.9"},
	}}
	peers := append(Peers(), KeyedPeers()...)
	all := versions(info, peers)
	modules := map[string]bool{}
	for _, p := range peers {
		modules[p.Module] = true
	}
	if len(all) != len(modules) {
		t.Fatalf("%d versions of %d modules", len(all), len(modules))
	}
	for _, v := range all {
		want := "(unknown version)"
		switch v.Name {
		case byXTime:
			want = "v1.2.3"
		case byJuju:
			want = "v2.0.0"
		}
		if v.Version != want {
			t.Errorf("%s is of version %q, want %q", v.Module, v.Version, want)
		}
	}
}
