package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAdmission lets 64 goroutines ask each limiter for a moment. How much they get is measured by the command; here no
// time is long enough to judge.
func TestAdmission(t *testing.T) {
	for _, a := range AskedLimiters() {
		set := quick
		r, err := a.MeasureAll(t.Context(), set)
		for err == nil && set.Wall < time.Minute && slices.ContainsFunc(r.Rates, func(m Admitted) bool { return m.Granted < 1 }) {
			set.Wall *= 4 // a machine may be so busy that nothing was asked in time
			r, err = a.MeasureAll(t.Context(), set)
		}
		if err != nil {
			t.Errorf("%s %s: %v", a.By, a.Call, err)
		}
		if len(r.Rates) != len(AdmissionRates()) || a.Allowed == "" {
			t.Errorf("%s %s: %+v", a.By, a.Call, r)
		}
		for _, m := range r.Rates {
			if m.Granted < 1 || m.Allowed < 1 || math.Abs(m.Ratio-float64(m.Granted)/m.Allowed) > 1e-12 {
				t.Errorf("%s %s at %d/s: %+v", a.By, a.Call, m.PerSecond, m)
			}
			if m.Met != (m.Ratio >= 0.99 && m.Ratio <= 1.01) {
				t.Errorf("%s %s at %d/s: met is %v at %v", a.By, a.Call, m.PerSecond, m.Met, m.Ratio)
			}
		}
	}
}

// TestAllowed asks the rules how much may be granted.
func TestAllowed(t *testing.T) {
	b := admissionBudget(1000)
	for _, c := range []struct {
		name    string
		allowed func(time.Duration) float64
		after   time.Duration
		want    float64
	}{
		{"bucket", b.evenly, 0, 100},
		{"bucket", b.evenly, 500 * time.Millisecond, 600},
		{"smooth", b.smoothly, 500 * time.Millisecond, 501},
		{"windows", inWindows(400), 0, 400},
		{"windows", inWindows(400), 399 * time.Millisecond, 400},
		{"windows", inWindows(400), 400 * time.Millisecond, 800},
		{"windows", inWindows(400), time.Second, 1200},
		{"weighed", inWeighed(400), 100 * time.Millisecond, 400},
		{"weighed", inWeighed(400), 500 * time.Millisecond, 500},
		{"weighed", inWeighed(400), time.Second, 1000},
	} {
		if got := c.allowed(c.after); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v allowed after %v, want %v", c.name, got, c.after, c.want)
		}
	}
}

// TestCrowd lets a small crowd wait for each limiter that can be canceled.
func TestCrowd(t *testing.T) {
	c := crowd{20, budget{10_000, time.Second, 5}, 2 * time.Millisecond}
	results, err := c.measure(t.Context(), cancelable(QueuedLimiters()), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		// Those with even numbers stay, and all of them are served.
		if r.Served < c.callers/2 || r.Served > c.callers || !(r.Last > 0) {
			t.Errorf("%s: %+v", r.By, r)
		}
		if r.Timers < 0 || r.Goroutines < 0 || !(r.Allocs > 0) {
			t.Errorf("%s: %+v", r.By, r)
		}
	}
}

func TestCrowdReportsRefusals(t *testing.T) {
	refusing := Queued{By: "nobody", Call: "refuse", New: func(budget) (func(context.Context) error, func()) {
		return func(context.Context) error { return errRefused }, nil
	}}
	c := crowd{4, budget{1000, time.Second, 1}, time.Millisecond}
	if _, err := c.measure(t.Context(), []Queued{refusing}, 1); !errors.Is(err, errRefused) {
		t.Errorf("a limiter that refuses instead of queueing was measured: %v", err)
	}
}

func TestOrder(t *testing.T) {
	ms := func(values ...int) (d []time.Duration) {
		for _, v := range values {
			d = append(d, time.Duration(v)*time.Millisecond)
		}
		return d
	}
	for _, c := range []struct {
		served         []time.Duration
		n, over, far   int
		lastInMillisec float64
	}{
		{ms(1, 2, 3), 3, 0, 0, 3},
		{ms(1, 0, 3, 0, 5), 3, 0, 0, 5},
		{ms(2, 1, 3), 3, 1, 0, 3},
		{ms(9, 1, 2, 3), 4, 1, 1, 9},
		{ms(4, 5, 6, 0, 1), 4, 3, 3, 6},
		{ms(2, 3, 3, 1), 4, 3, 2, 3},
	} {
		var r WaitersResult
		r.order(c.served, time.Millisecond)
		if r.Served != c.n || r.Overtaken != c.over || r.FarOvertaken != c.far || math.Abs(r.Last*1e3-c.lastInMillisec) > 1e-9 {
			t.Errorf("served at %v: %+v, want %+v", c.served, r, c)
		}
	}
}

// TestTheLineServesInOrder checks the floor of the waiting rows, in virtual time.
func TestTheLineServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait, stop := newLine(budget{1000, time.Second, 1})
		defer stop()
		begin := time.Now()
		impatient, cancel := context.WithCancel(t.Context())
		served := make([]time.Duration, 10)
		for i := range served {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = impatient
			}
			go func() {
				if wait(ctx) == nil {
					served[i] = time.Since(begin)
				}
			}()
			synctest.Wait()
		}
		cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		for i, at := range served {
			want := time.Duration(i/2+1) * time.Millisecond
			if i%2 == 1 {
				want = 0
			}
			if at != want {
				t.Errorf("caller %d was served after %v, want %v (0: it gave up)", i, at, want)
			}
		}
	})
}

func TestCountTimers(t *testing.T) {
	n, err := countTimers(func() error {
		for range 3 {
			time.NewTimer(time.Hour).Stop()
		}
		time.AfterFunc(time.Hour, func() {}).Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		cancel()
		return errors.Join(ctx.Err(), errRefused)
	})
	if n != 5 || !errors.Is(err, errRefused) {
		t.Errorf("counted %d timers, want 5: %v", n, err)
	}
}

func TestStreams(t *testing.T) {
	b := streams[0]
	results, err := measureStreams(t.Context(), streamsOf(b), 5*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	share(results, b, 5*time.Millisecond)
	relays, err := measureStreams(t.Context(), streamsOfRelays(), 5*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(results, relays...) {
		if !(r.PerSecond > 0) {
			t.Errorf("%s %s: %+v", r.By, r.Call, r)
		}
	}
	all := []StreamResult{{PerSecond: 55_000}}
	share(all, budget{100_000, time.Second, 10_000}, time.Second)
	if all[0].Share != 0.5 {
		t.Errorf("55,000 of 110,000 are %v", all[0].Share)
	}
}
