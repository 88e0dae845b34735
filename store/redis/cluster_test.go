package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// TestConformanceCluster runs the suite that every store must pass on a cluster of three masters and three replicas.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := 0
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		o := Options{Prefix: fmt.Sprintf("c%d:", n)}
		a, b := c.open(t, o), c.servers[4].openIn(t, o) // the latter is told of the cluster by a replica
		if !a.cluster || !b.cluster {
			t.Fatal("the servers are no cluster")
		}
		return storetest.Subject{Store: a, Other: b, Resolution: time.Microsecond, Tentative: true, Steps: stepsInRealTime}
	})
}

// TestClusterSlots charges keys on all nodes together, and compares the slots with those of the server.
func TestClusterSlots(t *testing.T) {
	t.Parallel()
	s := startCluster(t, 0).open(t, Options{})
	for _, key := range []string{"", "a", "user}1", "{x}", "%", "\x00\xff", strings.Repeat("k", 1000)} {
		name := s.key(&store.Charge{Policy: "p}{", Key: key}, kindRecord)
		if got := s.do(t, "CLUSTER", "KEYSLOT", name); got != strconv.Itoa(int(slotOf(name))) {
			t.Errorf("%q is in slot %s, not %d", name, got, slotOf(name))
		}
		for _, kind := range []byte{kindReservations, kindDue} {
			if other := s.key(&store.Charge{Policy: "other", Key: key}, kind); slotOf(other) != slotOf(name) {
				t.Errorf("%q and %q are in different slots", name, other)
			}
		}
	}
	charges := make([]store.Charge, store.MostCharges)
	for i := range charges {
		charges[i] = store.Charge{Policy: "p", Key: strconv.Itoa(i), Limit: yearly(int64(10 + i)), N: 1}
	}
	d := make([]weir.Decision, len(charges))
	for k := range 12 {
		if err := store.Take(context.Background(), s, charges, d); err != nil {
			t.Fatal(err)
		}
		for i := range d {
			if want := k < 10 || i > 0; d[i].Allowed != want || d[i].Remaining != int64(max(10+i-1-k, i)) {
				t.Fatalf("take %d, charge %d: %+v", k, i, d[i])
			}
		}
	}
}
