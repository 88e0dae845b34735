package load

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/cputime"
)

// simulated is a server in virtual time: it answers each command after the time that service says, one after the other.
func simulated(service func(now time.Duration) time.Duration) func() (net.Conn, error) {
	start := time.Now()
	return func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		arrived := make(chan int, 1<<20)
		go func() {
			defer close(arrived)
			b := make([]byte, 4096)
			for {
				n, err := theirs.Read(b)
				if err != nil {
					return
				}
				for range bytes.Count(b[:n], []byte{'*'}) {
					arrived <- 1
				}
			}
		}()
		go func() {
			for range arrived {
				time.Sleep(service(time.Since(start)))
				if _, err := io.WriteString(theirs, ":1\r\n"); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}
}

// virtual measures a simulated server.
func virtual(t *testing.T, o *options, service func(now time.Duration) time.Duration) *report {
	t.Helper()
	p, _ := watched(t, o, service)
	return p
}

// watched is virtual, and returns also what was told meanwhile.
func watched(t *testing.T, o *options, service func(now time.Duration) time.Duration) (p *report, progress string) {
	t.Helper()
	o.front, o.keys, o.distribution, o.keyPrefix = frontRESP, 10, uniform, "k"
	if o.timeout == 0 {
		o.timeout = time.Minute
	}
	args := []string{"INCR", keyMark}
	r := newRun(o, func() codec { return newRESPCodec(args, false, "") }, simulated(service))
	r.newAlarm = func() waiter { return sleeper{} }
	connections, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	measured := r.measure(t.Context(), connections, newLive(&told, o, r).watch)
	time.Sleep(2 * time.Hour) // whatever the server still does has an end
	return newReport(o, "INCR {key}", r, &measured), told.String()
}

// TestProgress tells every second how it goes, and nothing unless it is asked to.
func TestProgress(t *testing.T) {
	for progress, want := range map[bool]string{
		false: "",
		true: "warming up, 0.5 s left\n0.5 s  217/s  refused 0.00 %  errors 0  p50 9.00 ms  p99 9.00 ms\n" +
			"1.5 s  222/s  refused 0.00 %  errors 0  p50 9.00 ms  p99 9.00 ms\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &options{
				connections: 2, inFlight: 1, warmup: 1495 * time.Millisecond, duration: 1702 * time.Millisecond, progress: progress,
			}
			if _, got := watched(t, o, func(time.Duration) time.Duration { return 9 * time.Millisecond }); got != want {
				t.Errorf("%t: %q, want %q", progress, got, want)
			}
		})
	}
}

// stalls answers in a tenth of a millisecond, but not in the sixth second.
func stalls(now time.Duration) time.Duration {
	if now >= 5*time.Second && now < 6*time.Second {
		return 6*time.Second - now
	}
	return 100 * time.Microsecond
}

func between(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %g, want from %g to %g", what, got, least, most)
	}
}

// TestStallShowsInAnOpenLoop: of 10 seconds the server stands still for one, so that a tenth of all users wait, half a second on
// average, and one in a hundred for 0.9 seconds or longer. That is in the response times, whether the connection can send
// meanwhile or not; what was sent sees it only if it can.
func TestStallShowsInAnOpenLoop(t *testing.T) {
	for _, inFlight := range []int{1, 1000} {
		for _, arrivals := range []string{fixed, poisson} {
			synctest.Test(t, func(t *testing.T) {
				p := virtual(t, &options{connections: 1, inFlight: inFlight, rate: 500, arrivals: arrivals, duration: 10 * time.Second}, stalls)
				between(t, "requests", float64(p.Requests), 4_750, 5_250)
				between(t, "response p50", p.Response.P50, 0.0001, 0.001)
				between(t, "response p99", p.Response.P99, 0.87, 0.95)
				between(t, "response max", p.Response.Max, 0.99, 1.11)
				between(t, "sent late max", p.OpenLoop.SentLate.Max, 0, 0.0001)
				if inFlight == 1 {
					between(t, "service p99.9", p.OpenLoop.Service.P999, 0.0001, 0.001)
				} else {
					between(t, "service p99", p.OpenLoop.Service.P99, 0.87, 0.95)
				}
				if p.OpenLoop.NotSent != 0 || p.Errors != 0 || len(p.Notes) != 0 {
					t.Errorf("%d not sent, %d errors, %q", p.OpenLoop.NotSent, p.Errors, p.Notes)
				}
			})
		}
	}
}

// TestStallHidesInAClosedLoop is why there is an open loop: one request of ten thousand has met the stall.
func TestStallHidesInAClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := virtual(t, &options{connections: 1, inFlight: 1, duration: 10 * time.Second}, func(now time.Duration) time.Duration {
			return max(time.Millisecond, stalls(now))
		})
		between(t, "requests", float64(p.Requests), 8_950, 9_050)
		between(t, "response p99.9", p.Response.P999, 0.001, 0.0011)
		between(t, "response max", p.Response.Max, 0.99, 1.01)
		if p.OpenLoop != nil {
			t.Error("it is told as an open loop")
		}
	})
}

// TestServerThatCannotKeepUp is told from a generator that cannot.
func TestServerThatCannotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(time.Duration) time.Duration { return time.Millisecond }
		p := virtual(t, &options{connections: 2, inFlight: 10, rate: 4000, arrivals: fixed, duration: 10 * time.Second}, slow)
		between(t, "rate", p.RatePerSecond, 1950, 2050)
		between(t, "not sent", float64(p.OpenLoop.NotSent), 19_500, 20_500)
		between(t, "scheduled", float64(p.OpenLoop.Scheduled), 39_990, 40_010)
		between(t, "response max", p.Response.Max, 4.9, 5.1)
		between(t, "service max", p.OpenLoop.Service.Max, 0.009, 0.011)
		between(t, "sent late max", p.OpenLoop.SentLate.Max, 0, 0.0001)
		if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "the server did not keep up") {
			t.Errorf("%q", p.Notes)
		}
	})
}

// TestFastSchedulesAreSentTogether: requests that come faster than a program can sleep between are late by a tenth of a millisecond
// at most, and are counted so.
func TestFastSchedulesAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := func(time.Duration) time.Duration { return 10 * time.Microsecond }
		p := virtual(t, &options{connections: 1, inFlight: 100, rate: 50_000, arrivals: fixed, duration: time.Second}, quick)
		between(t, "requests", float64(p.Requests), 49_999, 50_000)
		between(t, "sent late max", p.OpenLoop.SentLate.Max, 0.00005, together.Seconds()*1.01)
		between(t, "response max", p.Response.Max, 0.00005, 0.00012)
		between(t, "service max", p.OpenLoop.Service.Max, 0.000009, 0.00006)
	})
}

// lateAlarm is one of a computer that is busy with something else.
type lateAlarm struct{ by time.Duration }

func (a lateAlarm) wait(d time.Duration) { time.Sleep(d + a.by) }
func (lateAlarm) close()                 {}

func TestGeneratorThatCannotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &options{
			front: frontRESP, connections: 1, inFlight: 100, rate: 100, arrivals: fixed, duration: 10 * time.Second,
			keys: 10, timeout: time.Minute,
		}
		args := []string{"INCR", keyMark}
		r := newRun(o, func() codec { return newRESPCodec(args, false, "") }, simulated(func(time.Duration) time.Duration { return 1 }))
		r.newAlarm = func() waiter { return lateAlarm{5 * time.Millisecond} }
		connections, err := r.connect()
		if err != nil {
			t.Fatal(err)
		}
		measured := r.measure(t.Context(), connections, nil)
		p := newReport(o, "INCR {key}", r, &measured)
		between(t, "sent late p50", p.OpenLoop.SentLate.P50, 0.005, 0.0051)
		between(t, "response p50", p.Response.P50, 0.005, 0.0051)
		between(t, "service p50", p.OpenLoop.Service.P50, 0, 0.0001)
		if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "THE GENERATOR COULD NOT KEEP UP") {
			t.Errorf("%q", p.Notes)
		}
	})
}

// TestWarmupIsNotCounted: the server is slow in its first second.
func TestWarmupIsNotCounted(t *testing.T) {
	cold := func(now time.Duration) time.Duration {
		if now < time.Second {
			return 100 * time.Millisecond
		}
		return time.Millisecond
	}
	for what, o := range map[string]*options{
		"closed":             {inFlight: 1, duration: 4 * time.Second},
		"open":               {inFlight: 10, duration: 4 * time.Second, rate: 100, arrivals: fixed},
		"closed, a number":   {inFlight: 1, requests: 1000},
		"open, a number":     {inFlight: 10, requests: 300, rate: 100, arrivals: fixed},
		"pipeline, a number": {inFlight: 64, requests: 1001},
	} {
		synctest.Test(t, func(t *testing.T) {
			o.connections, o.warmup = 1, 1200*time.Millisecond
			p := virtual(t, o, cold)
			if what != "pipeline, a number" {
				between(t, what+": max", p.Response.Max, 0.001, 0.0011)
			}
			if o.requests > 0 && p.Requests != o.requests {
				t.Errorf("%s: %d requests", what, p.Requests)
			}
			if o.requests == 0 {
				between(t, what+": elapsed", p.ElapsedSeconds, 3.99, 4.01)
			}
		})
	}
}

// TestTimeout: a server that goes silent is left after --timeout, and what it owes are errors.
func TestTimeout(t *testing.T) {
	silent := func(now time.Duration) time.Duration {
		if now > 2*time.Second {
			return time.Hour
		}
		return 10 * time.Millisecond
	}
	for what, o := range map[string]*options{
		"closed": {inFlight: 4, duration: 10 * time.Second, timeout: time.Second},
		"open":   {inFlight: 4, duration: 10 * time.Second, timeout: time.Second, rate: 50, arrivals: fixed},
	} {
		synctest.Test(t, func(t *testing.T) {
			o.connections = 1
			p := virtual(t, o, silent)
			if len(p.ErrorKinds) != 1 || p.ErrorKinds[0].Kind != "timeout" || p.Errors < 20 || p.Reconnects < 7 || p.Reconnects > 9 {
				t.Errorf("%s: %d errors, %v, %d reconnects", what, p.Errors, p.ErrorKinds, p.Reconnects)
			}
		})
	}
}

// TestWarmUpIsNoCost: a run that ends with its warm-up, as its few requests are answered at once or it is interrupted, has used no
// time of the processors for what it counts.
func TestWarmUpIsNoCost(t *testing.T) {
	before, err := cputime.Used()
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(&options{warmup: time.Hour, requests: 1, connections: 1}, nil, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(1); ; n = n*n + 1 {
			if now, err := cputime.Used(); err != nil || now > before+10*time.Millisecond {
				return
			}
		}
	}()
	if _, used, known := r.supervise(t.Context(), nil, done); used != 0 || !known {
		t.Errorf("used %v, known %t; want 0 and true", used, known)
	}
}
