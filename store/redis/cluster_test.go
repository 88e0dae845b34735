package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// startCluster starts a cluster of three servers that share the slots.
func startCluster(t *testing.T) []*server {
	t.Helper()
	const nodes = 3
	servers := make([]*server, nodes)
	clients := make([]rueidis.Client, nodes)
	for i := range servers {
		// the bus between the nodes has a port of its own, which must be free as well
		servers[i] = startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", strconv.Itoa(freePort(t)))
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{servers[i].address()}, DisableCache: true, ForceSingleClient: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		clients[i] = client
	}
	do := func(i int, command ...string) string {
		t.Helper()
		result := clients[i].Do(t.Context(), clients[i].B().Arbitrary(command...).Build())
		text, err := result.ToString()
		if err != nil {
			t.Fatal(command, err)
		}
		return text
	}
	for i := range servers {
		do(i, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(16384*i/nodes), strconv.Itoa(16384*(i+1)/nodes-1))
		do(i, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i := 1; i < nodes; i++ {
		var busPort string
		busPort, _, _ = strings.Cut(servers[i].busPort(), " ")
		do(0, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(servers[i].port), busPort)
	}
	until(t, "the nodes agree", func() bool {
		for i := range servers {
			info := do(i, "CLUSTER", "INFO")
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(nodes)) {
				return false
			}
		}
		return true
	})
	return servers
}

func (s *server) busPort() string { return s.args[len(s.args)-1] }

// TestConformanceCluster runs the suite that every store must pass on a cluster.
func TestConformanceCluster(t *testing.T) {
	servers := startCluster(t)
	n := 0
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		o := Options{Prefix: fmt.Sprintf("c%d:", n)}
		a, b := servers[0].openIn(t, o), servers[1].openIn(t, o)
		if !a.cluster {
			t.Fatal("the servers are no cluster")
		}
		return storetest.Subject{Store: a, Other: b, Resolution: time.Microsecond, Steps: stepsInRealTime}
	})
}

// TestClusterSlots charges keys on all nodes together, and compares the slots with those of the server.
func TestClusterSlots(t *testing.T) {
	servers := startCluster(t)
	s := servers[0].open(Options{})
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
		if err := s.Take(context.Background(), charges, d); err != nil {
			t.Fatal(err)
		}
		for i := range d {
			if want := k < 10 || i > 0; d[i].Allowed != want || d[i].Remaining != int64(max(10+i-1-k, i)) {
				t.Fatalf("take %d, charge %d: %+v", k, i, d[i])
			}
		}
	}
}
