package durable

import (
	"testing"
	"time"
)

// TestWindowsKeepTheirPhase: an owner whose clock is right begins with it, so that the delays of messages never add up; one whose
// clock is wrong goes on with the time that it was told.
func TestWindowsKeepTheirPhase(t *testing.T) {
	now := time.Now()
	heard := told{now.UnixNano() - int64(3*time.Second), now.Add(-3 * time.Second)}
	for _, off := range []time.Duration{0, time.Millisecond, -time.Millisecond, clocksAgree, -clocksAgree} {
		wall := now.Add(off).UnixNano()
		if got := heard.orWall(wall, now).on(now); got != wall {
			t.Errorf("a clock that is off by %v: the owner begins %v beside it", off, time.Duration(got-wall))
		}
	}
	for _, off := range []time.Duration{clocksAgree + 1, -clocksAgree - 1, time.Hour, -time.Hour} {
		if got := heard.orWall(now.Add(off).UnixNano(), now).on(now); got != now.UnixNano() {
			t.Errorf("a clock that is off by %v moves the time by %v", off, time.Duration(got-now.UnixNano()))
		}
	}
	if got := (told{}).orWall(5, now).on(now); got != 5 {
		t.Errorf("the first owner begins at %d, want its clock", got)
	}
}
