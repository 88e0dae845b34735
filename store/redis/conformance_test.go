package redis

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/store/storetest"
)

// stepsInRealTime is for servers of which a call costs more than a round trip.
const stepsInRealTime = 100

// TestConformance runs the suite that every store must pass by the clock of the server.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	prefixes := atomic.Int64{}
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		o := Options{Prefix: strconv.FormatInt(prefixes.Add(1), 10)}
		return storetest.Subject{Store: s.openIn(t, o), Other: s.openIn(t, o), Resolution: time.Microsecond, Break: func() func() {
			s.kill()
			return s.start
		}}
	})
}

// TestConformanceVirtual runs it in virtual time, with histories that must equal those of package algo.
func TestConformanceVirtual(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	prefixes := atomic.Int64{}
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		o := Options{Prefix: strconv.FormatInt(prefixes.Add(1), 10)}
		a, b := s.openIn(t, o), s.openIn(t, o)
		now := time.Now().UnixMicro()
		set := func() {
			a.virtual.Store(now)
			b.virtual.Store(now)
		}
		set()
		return storetest.Subject{
			Store: a, Other: b, Resolution: time.Microsecond,
			Now: func() int64 { return now * microsecond },
			Advance: func(d time.Duration) {
				now += int64(d) / microsecond
				set()
			},
		}
	})
}

// TestConformanceSplit runs it with every slot of a cluster by itself: charges of several are reserved first.
func TestConformanceSplit(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	prefixes := atomic.Int64{}
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		o := Options{Prefix: strconv.FormatInt(prefixes.Add(1), 10)}
		a, b := s.openIn(t, o), s.openIn(t, o)
		a.split, b.split = true, true
		return storetest.Subject{Store: a, Other: b, Resolution: time.Microsecond, Tentative: true}
	})
}
