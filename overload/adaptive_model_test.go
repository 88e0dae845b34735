package overload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// slowAdaptive is what the comment of Adaptive says, with every request of the window in a list.
type slowAdaptive struct {
	o                AdaptiveOptions
	begin, measured  int64
	ended            []outcome // that were granted in the window
	out              []int64   // after each grant of the window
	limit, base      float64
	outWhenMeasured  int64
	probing          bool
	effective        int64
	windows, probes  int64
	halvings, growth int
}

type outcome struct {
	latency int64
	dropped bool
}

func (m *slowAdaptive) granted(out int64) { m.out = append(m.out, out) }

func (m *slowAdaptive) end(now, since int64, dropped bool) {
	if since < m.begin {
		return
	}
	m.ended = append(m.ended, outcome{max(now-since, 1), dropped})
	if len(m.ended) < m.o.WindowSamples || now-m.begin < int64(m.o.Window) || now-m.begin < int64(2*m.base) {
		return
	}
	m.windows++
	var answered []int64
	for _, e := range m.ended[len(m.ended)-m.o.WindowSamples:] {
		if !e.dropped {
			answered = append(answered, e.latency)
		}
	}
	lost := 0.0
	for _, e := range m.ended {
		if e.dropped {
			lost += 1 / float64(len(m.ended))
		}
	}
	slices.Sort(answered)
	var median float64
	if len(answered) > 0 {
		median = float64(answered[(len(answered)-1)/2])
	}
	most := int64(0)
	for _, out := range m.out {
		most = max(most, out)
	}
	unloaded := m.probing || float64(most) <= m.limit/2
	if float64(most) <= float64(m.outWhenMeasured)/2 && median > m.o.Tolerance*m.base {
		unloaded = true
	}
	if unloaded || m.base == 0 {
		m.measured, m.outWhenMeasured = now, most
	}
	switch {
	case median == 0:
	case m.base == 0:
		m.base = median
	case unloaded || median < m.base/m.o.Tolerance:
		m.base = (m.base + median) / 2
	}
	wasProbing := m.probing
	m.probing = false
	if !wasProbing {
		gradient := 0.5
		if median > 0 {
			gradient = m.o.Tolerance * m.base / median
		}
		if lost > 0 {
			gradient = math.Min(gradient, 1) * (1 - lost)
		}
		gradient = math.Max(0.5, math.Min(2, gradient))
		to := gradient*m.limit + math.Sqrt(gradient*m.limit)
		to = (1-m.o.Smoothing)*m.limit + m.o.Smoothing*to
		switch {
		case to < m.limit:
			m.halvings++
			m.limit = math.Max(to, float64(m.o.MinLimit))
		case !unloaded:
			m.growth++
			m.limit = math.Min(to, float64(m.o.MaxLimit))
		}
		m.probing = !unloaded && now-m.measured >= int64(m.o.ProbeInterval)
	}
	m.effective = int64(m.limit)
	if m.probing {
		m.probes++
		m.effective = max(int64(m.limit/2), m.o.MinLimit)
	}
	m.begin, m.ended, m.out = now, nil, nil
}

func playAdaptive(t *testing.T, random *rand.Rand, clock *manualclock.Clock, a *Adaptive, m *slowAdaptive) {
	t.Helper()
	type request struct {
		lease        weir.Lease
		since, until int64
	}
	var out []request
	capacity := 5 + random.IntN(60)
	for step := range 10_000 {
		if step%2000 == 0 {
			capacity = 2 + random.IntN(80)
		}
		clock.Advance(time.Duration(random.IntN(2_000_000)))
		now := clock.Now()
		if l := a.TryAcquire(1); l.Allowed() {
			m.granted(int64(len(out) + 1))
			slow := max(1, float64(len(out)+1)/float64(capacity)) * (0.5 + random.Float64())
			out = append(out, request{l, now, now + int64(slow*20e6)})
			if int64(len(out)) > m.effective {
				t.Fatalf("step %d: %d are out of %d", step, len(out), m.effective)
			}
		} else if int64(len(out)) < m.effective {
			t.Fatalf("step %d: %+v with %d out", step, l.Decision(), len(out))
		}
		for i := 0; i < len(out); i++ {
			r := out[i]
			if r.until > now {
				continue
			}
			switch x := random.IntN(100); {
			case x < 5 && step%4000 > 2000:
				r.lease.Drop()
				m.end(now, r.since, true)
			case x < 10:
				r.lease.Cancel()
			default:
				r.lease.Release()
				m.end(now, r.since, false)
			}
			out = slices.Delete(out, i, i+1)
			i--
			limit, base := a.Stats().Limit, a.Estimate().Unloaded
			if limit != m.effective || math.Abs(float64(base)-m.base) > 2 {
				t.Fatalf("step %d: limit %d, unloaded %v, want %d, %v", step, limit, base, m.effective, time.Duration(m.base))
			}
			if limit < m.o.MinLimit || limit > m.o.MaxLimit {
				t.Fatalf("step %d: limit %d", step, limit)
			}
		}
	}
}
