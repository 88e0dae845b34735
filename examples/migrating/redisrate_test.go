package migrating_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/examples/migrating/redisrate"
	"github.com/weirhq/weir/store"
)

// tally counts what a limiter allows that is asked as often as possible, and when that was.
type tally struct {
	admitted     int
	first, last  time.Time // when the first request was answered, and the last one asked
	begin, ended time.Time // when the first one was asked, and the last one answered
	// lost is for how long it was not asked as often as permits come back: those may have been too many for the bucket.
	lost time.Duration
}

const pace = 10 // permits a second

// add counts a request that was asked at some time, and answered just now.
func (c *tally) add(asked time.Time, ok bool) {
	now := time.Now()
	if c.begin.IsZero() {
		c.begin, c.first = asked, now
	}
	if c.last.IsZero() {
		c.last = asked
	}
	c.lost += max(0, now.Sub(c.last)-time.Second/pace)
	c.last, c.ended = asked, now
	if ok {
		c.admitted++
	}
}

// check compares the count with what a bucket of burst permits, of which 10 come back in a second, allows a client that keeps
// asking: no request more than burst + rate x t, and none less, but for the one of the last moment. Clocks may be coarse by
// slack.
func (c *tally) check(t *testing.T, name string, burst float64, slack time.Duration) {
	t.Helper()
	most := math.Floor(burst + pace*(c.ended.Sub(c.begin)+slack).Seconds())
	least := math.Floor(burst+pace*(c.last.Sub(c.first)-c.lost-slack).Seconds()) - 1
	if admitted := float64(c.admitted); admitted > most || admitted < least {
		t.Errorf("%s admitted %d, must be from %v to %v in %v", name, c.admitted, least, most, c.ended.Sub(c.begin))
	}
}

// TestRedisRate asks both for the same key again and again for more than a second: both allow 20 at once and 10 a second, and
// tell when to come back alike, as far as they were asked at the same time.
func TestRedisRate(t *testing.T) {
	address := startRedis(t)
	before := redisrate.NewBefore(address)
	defer before.Close()
	after, err := redisrate.NewAfter(address)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	deadline := time.Now().Add(3 * time.Minute)
	for attempt := 0; !asksBoth(t, before, after, fmt.Sprint("alice", attempt)); attempt++ {
		if time.Now().After(deadline) {
			t.Fatal("the server has never answered in time")
		}
	}
}

// asksBoth asks both for a key, and compares them. It reports false if an answer took longer than weir waits for one, as on a machine
// that stands still: what became of that request is unknown.
func asksBoth(t *testing.T, before *redisrate.Before, after *redisrate.After, client string) bool {
	t.Helper()
	var old, now tally
	refused := 0
	for begin := time.Now(); time.Since(begin) < 1200*time.Millisecond || refused < 10; {
		asked := time.Now()
		oldOK, oldRetry, err := before.Allow(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		old.add(asked, oldOK)
		between := time.Now()
		nowOK, nowRetry, err := after.Allow(t.Context(), client)
		if errors.Is(err, store.ErrUnavailable) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		now.add(between, nowOK)
		if oldOK || nowOK {
			continue
		}
		refused++
		// What is told differs by the time between the first answers, and between these: modulo that between two permits.
		apart := (oldRetry - nowRetry).Abs()
		apart = min(apart, 100*time.Millisecond-apart)
		if most := now.first.Sub(old.begin) + time.Since(asked) + time.Millisecond; apart > most {
			t.Errorf("redis_rate says %v, weir %v: they differ by more than %v", oldRetry, nowRetry, most)
		}
	}
	old.check(t, "redis_rate", 20, time.Millisecond)
	now.check(t, "weir", 20, time.Millisecond)
	return true
}
