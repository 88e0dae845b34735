package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// admissionGoroutines ask one limiter at once.
const admissionGoroutines = 64

// AdmissionRates are the permits per second that limiters are asked to hold.
func AdmissionRates() []int64 { return []int64{1_000, 100_000, 1_000_000} }

// How far from what is allowed the granted may be.
const (
	leastAdmitted = 0.99
	mostAdmitted  = 1.01
)

// Asked is a limiter that many goroutines ask at once.
type Asked struct {
	By, Call string
	// Allowed says how many calls may be granted.
	Allowed string
	// New returns a new limiter that grants some permits a second.
	New func(perSecond int64) Asking
}

// Asking is one new limiter.
type Asking struct {
	// Call asks for one permit.
	Call func(ctx context.Context) (granted bool)
	// Allowed is how many permits may be granted in the time d after the limiter was made.
	Allowed func(d time.Duration) float64
	// Stop, which may be nil, ends what the limiter has started.
	Stop func()
}

// Admitted is how much was granted at one rate.
type Admitted struct {
	PerSecond int64   `json:"per_second"`
	Granted   int64   `json:"granted"`
	Allowed   float64 `json:"allowed"`
	Ratio     float64 `json:"ratio"`
	Met       bool    `json:"met"`
}

// AdmissionResult is how much a limiter granted at all rates.
type AdmissionResult struct {
	By      string     `json:"by"`
	Call    string     `json:"call"`
	Allowed string     `json:"allowed_is"`
	Rates   []Admitted `json:"rates"`
}

// Met reports whether the limiter granted what is allowed at all rates, within 1 %.
func (r AdmissionResult) Met() bool {
	for _, m := range r.Rates {
		if !m.Met {
			return false
		}
	}
	return true
}

// MeasureAll measures all rates, one after the other.
func (a Asked) MeasureAll(ctx context.Context, set Settings) (AdmissionResult, error) {
	r := AdmissionResult{By: a.By, Call: a.Call, Allowed: a.Allowed}
	for _, perSecond := range AdmissionRates() {
		m, err := a.Measure(ctx, perSecond, set.Wall)
		if err != nil {
			return r, err
		}
		r.Rates = append(r.Rates, m)
	}
	return r, nil
}

// Measure lets 64 goroutines ask as fast as they can. A call that ends after the time is over does not count: it may
// have been granted later.
func (a Asked) Measure(ctx context.Context, perSecond int64, wall time.Duration) (Admitted, error) {
	born := time.Now()
	limiter := a.New(perSecond)
	if limiter.Stop != nil {
		defer limiter.Stop()
	}
	var (
		granted atomic.Int64
		over    atomic.Bool
		callers sync.WaitGroup
	)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for range admissionGoroutines {
		callers.Go(func() {
			own := int64(0)
			for !over.Load() {
				if limiter.Call(inner) && !over.Load() {
					own++
				}
			}
			granted.Add(own)
		})
	}
	pause(ctx, wall-time.Since(born))
	over.Store(true)
	elapsed := time.Since(born)
	cancel()
	callers.Wait()
	m := Admitted{PerSecond: perSecond, Granted: granted.Load(), Allowed: limiter.Allowed(elapsed)}
	m.Ratio = float64(m.Granted) / m.Allowed
	m.Met = m.Ratio >= leastAdmitted && m.Ratio <= mostAdmitted
	return m, ctx.Err()
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
