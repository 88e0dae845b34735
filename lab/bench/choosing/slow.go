package choosing

import (
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

const (
	slowLasts  = 20 * time.Second
	slowBegins = 6 * time.Second
	slowEnds   = 14 * time.Second
)

// Load is how a service behind a limit is at each step of a tenth of a second.
type Load struct {
	Name     string
	InFlight []int // requests that are with the service
	Admitted []int // in the second before
}

// Slow puts a limit on the rate, and one on the number of requests at a time, before a service that becomes ten times as slow
// for a while. 20 requests a second come.
func Slow() ([]Load, error) {
	var loads []Load
	for _, kind := range []struct {
		name    string
		limiter func(weir.Clock) (weir.Acquirer, error)
	}{
		{"token bucket, 20/s", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.TokenBucket(weir.PerSecond(20), 0), weir.Options{Clock: c}))
		}},
		{"concurrency, 8", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.NewConcurrency(8, weir.Options{Clock: c}))
		}},
	} {
		clock := manualclock.New(0)
		limiter, err := kind.limiter(clock)
		if err != nil {
			return nil, err
		}
		type request struct {
			began, ends time.Duration
			lease       weir.Lease
		}
		var with []request // with the service
		var began []time.Duration
		load := Load{Name: kind.name}
		for now := time.Duration(0); now < slowLasts; now += 50 * time.Millisecond {
			clock.Set(int64(now))
			rest := with[:0]
			for _, r := range with {
				if r.ends <= now {
					r.lease.Release()
				} else {
					rest = append(rest, r)
				}
			}
			with = rest
			takes := 250 * time.Millisecond
			if now >= slowBegins && now < slowEnds {
				takes *= 10
			}
			if lease := limiter.TryAcquire(1); lease.Allowed() {
				with = append(with, request{now, now + takes, lease})
				began = append(began, now)
			}
			if now%(100*time.Millisecond) == 0 {
				recent := 0
				for _, at := range began {
					if at > now-time.Second {
						recent++
					}
				}
				load.InFlight, load.Admitted = append(load.InFlight, len(with)), append(load.Admitted, recent)
			}
		}
		loads = append(loads, load)
	}
	return loads, nil
}

// DrawSlow draws both next to each other.
func DrawSlow(w io.Writer, loads []Load) error {
	const (
		left, top, right = 64.0, 116.0, 880.0
		rowHeight        = 170.0
		high             = 120.0
	)
	p := newPicture(900, top+2*rowHeight+16,
		"A service becomes ten times as slow for eight seconds. Behind a limit on the rate, requests pile up to 50 at a time; "+
			"behind a limit on concurrency there are never more than 8, and fewer are allowed.")
	p.text(20, 34, "title", "start", "A service becomes ten times as slow: a limit on the rate, and one on concurrency")
	p.text(20, 57, "dim", "start", "20 requests a second come. Each takes 250 ms, and 2.5 s from second 6 to second 14.")
	p.stroke("other", 640, 53, 664, 53)
	p.text(672, 57, "dim", "start", loads[0].Name)
	p.stroke("line", 640, 73, 664, 73)
	p.text(672, 77, "dim", "start", loads[1].Name)
	x := func(at time.Duration) float64 { return left + (right-left)*at.Seconds()/slowLasts.Seconds() }
	for row, panel := range []struct {
		title  string
		values func(*Load) []int
		most   int
		ticks  []int
	}{
		{"requests that are with the service", func(l *Load) []int { return l.InFlight }, 60, []int{0, 20, 40, 60}},
		{"allowed in the second before", func(l *Load) []int { return l.Admitted }, 48, []int{0, 10, 20, 30, 40}},
	} {
		y := top + rowHeight*float64(row)
		floor := y + high
		scale := func(n int) float64 { return floor - high*float64(n)/float64(panel.most) }
		p.text(left, y-8, "name", "start", panel.title)
		p.rect("plot", left, y, right-left, high)
		for second := 0; second <= 20; second += 2 {
			p.stroke("grid", x(time.Duration(second)*time.Second), y, x(time.Duration(second)*time.Second), floor)
			p.text(x(time.Duration(second)*time.Second), floor+17, "tick", "middle", fmt.Sprintf("%d s", second))
		}
		for _, n := range panel.ticks {
			p.text(left-8, scale(n)+4, "tick", "end", fmt.Sprint(n))
		}
		for i, class := range []string{"other", "line"} {
			values := panel.values(&loads[i])
			points := make([]point, 0, len(values))
			for step, n := range values {
				points = append(points, point{x(time.Duration(step) * 100 * time.Millisecond), scale(n)})
			}
			p.line(class, points)
		}
		p.dashed("limit", x(slowBegins), y, x(slowBegins), floor)
		p.dashed("limit", x(slowEnds), y, x(slowEnds), floor)
	}
	return p.write(w)
}
