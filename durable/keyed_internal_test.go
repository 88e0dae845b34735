package durable

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// wallAt is a wall clock that stands still.
type wallAt time.Time

func (w wallAt) Now() int64 { return time.Time(w).UnixNano() }

func (wallAt) AfterFunc(time.Duration, func()) func() bool { return func() bool { return false } }

// TestKeyedKnowsTheMonth: a quota of a month that is used up stays so over reboots, also when the clock is set back, and
// comes back with the next month.
func TestKeyedKnowsTheMonth(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	month := weir.CalendarWindow(3, algo.Calendar{Unit: algo.CalendarMonth, Zone: vienna})
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	last := time.Date(2026, 11, 30, 23, 59, 58, 0, vienna)
	for _, step := range []struct {
		now  time.Time
		left int64
	}{
		{last.AddDate(0, 0, -3), 3},
		{last.AddDate(0, 0, -3), 0},
		{last, 0},
		{last.Add(-5 * time.Second), 0}, // set back
		{last.AddDate(0, 0, -2), 0},
		{last.Add(1900 * time.Millisecond), 0},
		{last.Add(2100 * time.Millisecond), 3}, // 1 December
		{last, 0},                              // set back to November, of which nothing is left either
		{last.AddDate(0, 0, 30), 0},
		{last.AddDate(0, 0, 31).Add(2100 * time.Millisecond), 3}, // January
	} {
		k, err := OpenKeyed("quota", month, KeyedOptions{disk: d, clock: wallAt(step.now)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range step.left {
			if got := k.Take("acme", 1); !got.Allowed || got.Remaining != step.left-1-i {
				t.Errorf("%v: %+v", step.now, got)
			}
		}
		if got := k.Take("acme", 1); got.Allowed || got.RetryAfter <= 0 {
			t.Errorf("%v: one too many: %+v", step.now, got)
		}
		_ = k.Close()
	}
}

// TestKeyedOnDiskThatFails: nothing is granted that is not on disk, and it goes on when the disk does.
func TestKeyedOnDiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(rand.New(rand.NewPCG(2, 2)))
		limit := weir.CalendarWindow(3, algo.Calendar{Unit: algo.CalendarYear})
		k, err := OpenKeyed("quota", limit, KeyedOptions{disk: d, Name: "year"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Close() }()
		if !k.Allow("a") {
			t.Fatal("refused")
		}
		set := func(dead bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.dead = dead
		}
		set(true)
		if got := k.Take("b", 1); got.Allowed || got.Reason != weir.ReasonUnavailable || got.Policy != "year" {
			t.Errorf("%+v", got)
		}
		if err := k.Wait(t.Context(), "b", 1); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		set(false)
		granted := 0
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Second) { // of the bubble
			if k.Allow("b") {
				granted++
			}
		}
		if granted < 1 || granted > 3 {
			t.Errorf("%d were granted once the disk works again", granted)
		}
	})
}
