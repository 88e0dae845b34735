package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

func newReplicas(t *testing.T, s store.Home, o store.ReplicasOptions) *store.Replicas {
	t.Helper()
	r, err := store.NewReplicas(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReplicasCount has three processes come and go: each knows how many there are.
func TestReplicasCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 2 * time.Second
		shared := newMemory(t, store.MemoryOptions{})
		other := newReplicas(t, shared, store.ReplicasOptions{Group: "another"})
		var nodes []*store.Replicas
		var lines []*outage
		want := func(n int, why string) {
			t.Helper()
			for i, r := range nodes {
				if got := r.Live(); got != n {
					t.Errorf("%s: node %d counts %d, want %d", why, i, got, n)
				}
			}
		}
		for i := range 3 {
			lines = append(lines, &outage{Home: shared})
			nodes = append(nodes, newReplicas(t, lines[i], store.ReplicasOptions{}))
			time.Sleep(interval + 1)
			want(i+1, "started")
		}
		for range 100 {
			time.Sleep(interval/3 + 1)
			want(3, "goes on")
		}
		if got := other.Live(); got != 1 {
			t.Errorf("another group counts %d", got)
		}
		if err := errors.Join(nodes[1].Close(), nodes[1].Close()); err != nil {
			t.Error(err)
		}
		nodes = append(nodes[:1], nodes[2:]...)
		time.Sleep(interval + 1)
		want(2, "one was closed")

		lines[2].breaks() // for ever: the process is dead
		dead := nodes[1]
		nodes = nodes[:1]
		time.Sleep(2 * interval)
		want(2, "one has died a moment ago")
		time.Sleep(2*interval + 1)
		want(1, "one has died")
		if dead.Live() != 2 {
			t.Errorf("a server that does not hear the others counts %d", dead.Live())
		}
		for _, r := range []*store.Replicas{nodes[0], dead, other} {
			_ = r.Close() // or the goroutines would be found
		}
	})
}

// TestReplicasOutage takes the store away for longer than registrations last: the count stays while it is away, and is not less
// when it is back, although the first process that asks is alone then.
func TestReplicasOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		shared := &outage{Home: newMemory(t, store.MemoryOptions{})}
		var nodes [n]*store.Replicas
		for i := range nodes {
			nodes[i] = newReplicas(t, shared, store.ReplicasOptions{})
			t.Cleanup(func() { nodes[i].Close() })
		}
		least := func() int {
			least := n
			for _, r := range nodes {
				least = min(least, r.Live())
			}
			return least
		}
		time.Sleep(10 * time.Second)
		if least() != n {
			t.Fatalf("counted %d", least())
		}
		repair := shared.breaks()
		for range 60 {
			time.Sleep(time.Second)
			if least() != n {
				t.Fatalf("counted %d while the store is away", least())
			}
		}
		late := newReplicas(t, shared, store.ReplicasOptions{Assumed: 4})
		synctest.Wait()
		if late.Live() != 4 {
			t.Errorf("a process that does not know counts %d", late.Live())
		}
		_ = late.Close()
		_ = nodes[0].Close() // which cannot be told
		repair()
		for range 300 {
			time.Sleep(20 * time.Millisecond)
			if least() != n {
				t.Fatalf("counted %d when the store is back", least())
			}
		}
		time.Sleep(4 * time.Second)
		for _, r := range nodes[1:] {
			if r.Live() != n-1 {
				t.Errorf("counted %d, want %d", r.Live(), n-1)
			}
		}
		// A store that has lost everything does not make them fewer.
		_ = store.Reset(t.Context(), shared, "weir-replicas", "fleet")
		for range 300 {
			time.Sleep(20 * time.Millisecond)
			for _, r := range nodes[1:] {
				if r.Live() < n-1 {
					t.Fatalf("counted %d after a loss", r.Live())
				}
			}
		}
	})
}

func TestReplicasDisabled(t *testing.T) {
	m := newMemory(t, store.MemoryOptions{})
	r := newReplicas(t, m, store.ReplicasOptions{Disabled: true, Assumed: 3})
	if r.Live() != 3 || m.Len() != 0 {
		t.Errorf("%d, %d", r.Live(), m.Len())
	}
	_ = r.Close()
}

func TestReplicasOptions(t *testing.T) {
	for _, o := range []store.ReplicasOptions{
		{Group: strings.Repeat("x", 65)},
		{Interval: 1},
		{Interval: 2 * time.Hour},
		{Expiry: time.Second},
		{Expiry: 25 * time.Hour},
		{Assumed: -1},
		{Assumed: 10_001},
	} {
		_, err := store.NewReplicas(nil, o)
		if _, ok := errors.AsType[*weir.OptionError](err); !ok || !strings.HasPrefix(err.Error(), "weir: ReplicasOptions.") {
			t.Errorf("%s: %v", fmt.Sprintf("%+v", o), err)
		}
	}
}
