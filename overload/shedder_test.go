package overload_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

// gauge is a source of pressure that is set.
type gauge struct {
	mu    sync.Mutex
	value float64
	err   error
	reads int
}

func (g *gauge) Pressure(int64) (float64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads++
	return g.value, g.err
}

func (g *gauge) String() string { return "gauge" }

func (g *gauge) set(value float64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value, g.err = value, err
}

// directShedder follows its sources at once.
func directShedder(t *testing.T, clock weir.Clock, sources ...overload.Pressure) *overload.Shedder {
	t.Helper()
	s, err := overload.NewShedder(overload.ShedderOptions{
		Name: "shed", Sources: sources, Interval: time.Second, Rise: -1, Fall: -1, Hysteresis: -1,
		Random: rand.New(rand.NewPCG(1, 2)).Float64, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var allPriorities = []overload.Priority{
	overload.PriorityBackground, overload.PrioritySheddable, overload.PriorityNormal, overload.PriorityCritical,
}

// TestShedderShedsInProportion compares the share of the requests that are shed with the band of each priority.
func TestShedderShedsInProportion(t *testing.T) {
	clock := manualclock.New(0)
	g := &gauge{}
	s := directShedder(t, clock, g)
	for _, c := range []struct {
		pressure float64
		want     [4]float64
	}{
		{0, [4]float64{}},
		{0.70, [4]float64{}},
		{0.775, [4]float64{0.5, 0, 0, 0}},
		{0.85, [4]float64{1, 1.0 / 3, 0, 0}},
		{0.95, [4]float64{1, 1, 0.5, 0}},
		{1, [4]float64{1, 1, 1, 3.0 / 13}},
		{1.10, [4]float64{1, 1, 1, 1}},
		{50, [4]float64{1, 1, 1, 1}},
		{0.3, [4]float64{}},
	} {
		g.set(c.pressure, nil)
		clock.Advance(time.Second)
		for i, p := range allPriorities {
			const n = 4000
			shed := 0
			for range n {
				d := s.Decide(p)
				if d.Allowed {
					continue
				}
				shed++
				if d.Reason != weir.ReasonOverloaded || d.Policy != "shed" || d.RetryAfter < time.Second || d.RetryAfter > 10*time.Second {
					t.Fatalf("%+v", d)
				}
				if c.want[i] == 1 && d.RetryAfter != 10*time.Second {
					t.Fatalf("all are shed, and %+v", d)
				}
			}
			got := float64(shed) / n
			exact := c.want[i] == 0 || c.want[i] == 1
			if exact && got != c.want[i] || math.Abs(got-c.want[i]) > 0.03 {
				t.Errorf("pressure %v: %.3f of %v are shed, want %.3f", c.pressure, got, p, c.want[i])
			}
			if share := s.Stats().Priorities[i].Share; math.Abs(share-c.want[i]) > 1e-9 {
				t.Errorf("pressure %v: share %v of %v, want %v", c.pressure, share, p, c.want[i])
			}
		}
	}
}

func TestHysteresisIgnoresWhatTrembles(t *testing.T) {
	clock := manualclock.New(0)
	g := &gauge{}
	s, err := overload.NewShedder(overload.ShedderOptions{
		Sources: []overload.Pressure{g}, Interval: time.Second, Rise: -1, Fall: -1, Hysteresis: 0.1, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ read, want float64 }{
		{0.8, 0.8},
		{0.75, 0.8},
		{0.79, 0.8},
		{0.71, 0.8},
		{0.8, 0.8},   // trembles
		{0.85, 0.85}, // up at once
		{0.7, 0.8},
		{0.6, 0.7}, // down, but for the hysteresis
		{0.65, 0.7},
		{0.69, 0.7},
		{0.72, 0.72},
		{0, 0.1},
		{0, 0.1},
	} {
		g.set(c.read, nil)
		clock.Advance(time.Second)
		s.Allow(overload.PriorityNormal)
		if got := s.Stats().Pressure; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("read %v: pressure %v, want %v", c.read, got, c.want)
		}
	}
}

// TestShedderSmooths compares the average with the exponential that it is.
func TestShedderSmooths(t *testing.T) {
	clock := manualclock.New(0)
	g := &gauge{}
	s, err := overload.NewShedder(overload.ShedderOptions{
		Sources: []overload.Pressure{g}, Interval: 100 * time.Millisecond, Rise: 2 * time.Second, Fall: 4 * time.Second,
		Hysteresis: -1, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(value float64, n int, every time.Duration) float64 {
		g.set(value, nil)
		for range n {
			clock.Advance(every)
			s.Allow(overload.PriorityNormal)
		}
		return s.Stats().Pressure
	}
	for _, c := range []struct{ got, want float64 }{
		{read(1, 20, 100*time.Millisecond), 1 - math.Exp(-1)},
		{read(1, 1, 2*time.Second), 1 - math.Exp(-2)}, // however often it is read
		{read(0, 2, 2*time.Second), (1 - math.Exp(-2)) * math.Exp(-1)},
		{read(0, 1, time.Hour), 0},
	} {
		if math.Abs(c.got-c.want) > 1e-6 {
			t.Errorf("pressure %v, want %v", c.got, c.want)
		}
	}
}

func TestShedderReadsOncePerInterval(t *testing.T) {
	clock := manualclock.New(0)
	g := &gauge{}
	s := directShedder(t, clock, g)
	for range 10 {
		for range 100 {
			s.Allow(overload.PriorityNormal)
		}
		clock.Advance(100 * time.Millisecond)
	}
	s.Stats()
	if g.reads != 1 { // by the constructor
		t.Errorf("%d reads within an interval", g.reads)
	}
	s.Allow(overload.PriorityNormal)
	s.Allow(overload.PriorityNormal)
	if g.reads != 2 {
		t.Errorf("%d reads", g.reads)
	}
}

// TestNobodyWaitsForAReading has a source that answers only when all other calls have been answered.
func TestNobodyWaitsForAReading(t *testing.T) {
	clock := manualclock.New(0)
	others := make(chan struct{})
	reading := make(chan struct{})
	var reads atomic.Int64
	s := directShedder(t, clock, overload.NewPressure("slow", func(int64) (float64, error) {
		if reads.Add(1) == 2 {
			close(reading)
			<-others
		}
		return 0, nil
	}))
	clock.Advance(time.Second)
	var first sync.WaitGroup
	first.Go(func() { s.Allow(overload.PriorityNormal) })
	<-reading
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { s.Allow(overload.PriorityNormal) })
	}
	all.Wait()
	close(others)
	first.Wait()
	if reads.Load() != 2 {
		t.Errorf("%d reads", reads.Load())
	}
}

// TestShedderWithoutSources has sources that fail, lie and are absent, beside one that is right.
func TestShedderWithoutSources(t *testing.T) {
	clock := manualclock.New(0)
	good, bad, absent := &gauge{value: 2}, &gauge{err: errors.New("broken")}, &gauge{err: fmt.Errorf("here: %w", overload.ErrNoPressure)}
	s := directShedder(t, clock, bad, absent, good)
	if s.Allow(overload.PriorityCritical) {
		t.Error("the source that is right does not count")
	}
	for _, lie := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.001, 101} {
		bad.set(lie, nil)
		good.set(0.775, nil)
		clock.Advance(time.Second)
		s.Allow(overload.PriorityNormal)
		if st := s.Stats(); st.Pressure != 0.775 || st.Readings[0].Err == nil || st.Readings[0].Pressure != 0 {
			t.Errorf("%v: %+v", lie, st)
		}
	}
	st := s.Stats()
	if r := st.Readings[0]; r.Failures != 6 || r.Absent || r.Source != "gauge" {
		t.Errorf("%+v", r)
	}
	if r := st.Readings[1]; r.Failures != 0 || r.Err != nil || !r.Absent {
		t.Errorf("%+v", r)
	}
	good.set(0, errors.New("broken too"))
	clock.Advance(time.Second)
	if !s.Allow(overload.PriorityBackground) || !s.Stats().Blind {
		t.Errorf("all sources fail: %+v", s.Stats())
	}
	bad.set(0.5, nil)
	clock.Advance(time.Second)
	s.Allow(overload.PriorityNormal)
	if st := s.Stats(); st.Blind || st.Readings[0].Err != nil || st.Readings[0].Failures != 7 {
		t.Errorf("%+v", st)
	}
}

func TestShedderOptions(t *testing.T) {
	some := []overload.Pressure{&gauge{}}
	for option, o := range map[string]overload.ShedderOptions{
		"Sources":           {Sources: []overload.Pressure{}},
		"Sources[1]":        {Sources: []overload.Pressure{&gauge{}, nil}},
		"Interval":          {Sources: some, Interval: time.Microsecond},
		"Rise":              {Sources: some, Rise: time.Hour},
		"Fall":              {Sources: some, Fall: time.Hour},
		"Hysteresis":        {Sources: some, Hysteresis: math.NaN()},
		"RetryAfter":        {Sources: some, RetryAfter: time.Microsecond},
		"MaxRetryAfter":     {Sources: some, RetryAfter: time.Minute, MaxRetryAfter: time.Second},
		"Bands":             {Sources: some, Bands: map[overload.Priority]overload.ShedBand{9: {0, 1}}},
		"Bands[normal]":     {Sources: some, Bands: map[overload.Priority]overload.ShedBand{0: {0.95, 0.95}}},
		"Bands[critical]":   {Sources: some, Bands: map[overload.Priority]overload.ShedBand{1: {0.1, 0.2}}},
		"Bands[background]": {Sources: some, Bands: map[overload.Priority]overload.ShedBand{-2: {math.NaN(), 1}}},
	} {
		var misuse *weir.OptionError
		if _, err := overload.NewShedder(o); !errors.As(err, &misuse) || misuse.Option != "overload.ShedderOptions."+option {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestTextOfPriorities(t *testing.T) {
	for _, p := range allPriorities {
		text, err := p.MarshalText()
		var back overload.Priority
		if err != nil || back.UnmarshalText(text) != nil || back != p || p.String() != string(text) {
			t.Errorf("%v is %q and then %v, %v", p, text, back, err)
		}
	}
	if got := overload.Priority(5).String(); got != "Priority(5)" {
		t.Error(got)
	}
	var p overload.Priority
	if err := p.UnmarshalText([]byte("urgent")); err == nil || !strings.Contains(err.Error(), "background, sheddable, normal or critical") {
		t.Error(err)
	}
	if p != overload.PriorityNormal {
		t.Errorf("the zero value is %v", p)
	}
}

// TestZeroShedderSaysHowItIsMade at each call: one that was not made has nothing to read, and must not allow everything.
func TestZeroShedderSaysHowItIsMade(t *testing.T) {
	s := new(overload.Shedder)
	for range 2 {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "NewShedder") {
					t.Error(got)
				}
			}()
			t.Error(s.Allow(overload.PriorityNormal))
		}()
	}
}

// TestContentionShedder counts what many goroutines were told, while others read the statistics.
func TestContentionShedder(t *testing.T) {
	g := &gauge{value: 0.95}
	s, err := overload.NewShedder(overload.ShedderOptions{Sources: []overload.Pressure{g}, Interval: time.Millisecond, Rise: -1, Fall: -1})
	if err != nil {
		t.Fatal(err)
	}
	var admitted, shed [4]atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 4000 {
				p := allPriorities[i%4]
				if s.Allow(p) {
					admitted[i%4].Add(1)
				} else {
					shed[i%4].Add(1)
				}
				if i%1000 == 0 {
					s.Stats()
				}
			}
		})
	}
	all.Wait()
	for i, p := range s.Stats().Priorities {
		if p.Priority != allPriorities[i] || p.Allowed != admitted[i].Load() || p.Shed != shed[i].Load() {
			t.Errorf("%+v, admitted %d, shed %d", p, admitted[i].Load(), shed[i].Load())
		}
	}
	if shed[0].Load() != 16_000 || admitted[3].Load() != 16_000 || shed[2].Load() < 5_000 || shed[2].Load() > 11_000 {
		t.Errorf("%+v", s.Stats())
	}
}

func TestShedderDoesNotAllocate(t *testing.T) {
	s := directShedder(t, nil, &gauge{value: 0.95})
	if n := testing.AllocsPerRun(1000, func() { s.Decide(overload.PriorityNormal) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
