//go:build linux

package etcd_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// totals is what all rounds of all tests have seen.
var totals struct {
	granted, inOrder, histories, operations, quotaTaken, quotaBurned atomic.Int64
}

// kinds are the faults whose names contain WEIR_FAULTS: all, unless that is set.
func kinds(tb testing.TB) (some []fault) {
	tb.Helper()
	text := os.Getenv("WEIR_FAULTS")
	for _, f := range faults {
		if strings.Contains(f.name, text) {
			some = append(some, f)
		}
	}
	if len(some) == 0 {
		tb.Fatalf("WEIR_FAULTS is %q: must be a part of the name of a fault", text)
	}
	return some
}

// rounds is how many rounds of faults the tests do: WEIR_ROUNDS, or a few.
func rounds(tb testing.TB, few int) int {
	tb.Helper()
	text := os.Getenv("WEIR_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("WEIR_ROUNDS is %q: must be a number of rounds from 1", text)
	}
	return n
}

// fault is something that befalls a cluster.
type fault struct {
	name string
	do   func(*round)
}

// faults are what befalls a cluster, each in its own way back to one that is whole.
var faults = []fault{
	{"kill -9 of the owner", killOwner},
	{"SIGSTOP of the owner", stopOwner},
	{"the owner cut off, silently", func(r *round) { cutOwner(r, silent) }},
	{"the owner cut off, by resets", func(r *round) { cutOwner(r, refused) }},
	{"a follower cut off from the owner", cutFollower},
	{"every connection reset", resetAll},
	{"kill -9 of all", killAll},
	{"a full disk", fullDisk},
	{"a last record that is cut off", tornLog},
	{"a last record that is garbage", garbledLog},
	{"a record of a key that is garbage", spoiledRecord},
}

// testFaults does the faults in their order from the one with that index, a few unless WEIR_ROUNDS says how many.
func testFaults(t *testing.T, first, few int) {
	t.Helper()
	var mu sync.Mutex
	times := make(map[string][]time.Duration)
	begun := time.Now()
	chosen, n := kinds(t), rounds(t, few)
	var next, did atomic.Int64
	t.Run("clusters", func(t *testing.T) {
		clusters := []struct {
			name    string
			reserve int64
			disks   func(tb testing.TB) directories
		}{{"adaptive", 0, disks}, {"one at a time", 1, plain}}
		for _, c := range clusters[:min(n, len(clusters))] {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				cluster := newCluster(t, c.name, nodeConfig{Reserve: c.reserve, WriteTimeout: 2 * time.Second}, c.disks)
				// The process that has done a round does the next one, of the next kind.
				for at := next.Add(1); int(at) <= n && !t.Failed(); at = next.Add(1) {
					fault := chosen[(first+int(at-1))%len(chosen)]
					from := time.Now()
					r := cluster.begin()
					r.kind = fault.name
					fault.do(r)
					r.end()
					did.Add(1)
					t.Logf("round of %v", time.Since(from).Round(time.Millisecond))
					mu.Lock()
					times[r.kind] = append(times[r.kind], r.service)
					mu.Unlock()
				}
			})
		}
	})
	for _, f := range chosen {
		all := times[f.name]
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		t.Logf("%-34s %3d rounds; without service: least %v, median %v, most %v", f.name, len(all), all[0].Round(time.Millisecond),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	t.Logf("%d rounds in %v; %d requests granted; %d in the order of their queue; %d histories of %d requests checked; of %d permits of quotas %d were burned",
		did.Load(), time.Since(begun).Round(time.Second), totals.granted.Load(), totals.inOrder.Load(), totals.histories.Load(),
		totals.operations.Load(), totals.quotaTaken.Load(), totals.quotaBurned.Load())
}

// more has the load go on until there were so many more grants of the busy key.
func (r *round) more(grants int) {
	h := &r.cluster.history
	count := func() (n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range h.events {
			if h.events[i].Key == busyKey && h.events[i].Reason == weir.ReasonNone {
				n++
			}
		}
		return n
	}
	before := count()
	r.cluster.until("the load goes on", func() bool { return count() >= before+grants })
}

// strike marks the moment of a fault, which takes processes away.
func (r *round) strike(away ...int) {
	r.fault, r.away = monotonic(), away
}

// died notes that callers were killed with their processes: they may have taken permits without a word of it.
func (r *round) died(n int) {
	r.killed += n
	r.least += int64(n) * 2 * mostAsked
}

func killOwner(r *round) {
	r.more(40)
	owner := r.cluster.owner()
	r.strike(owner.config.Index)
	owner.kill()
	r.died(1)
	r.settle(r.fault, owner.config.Index)
	r.cluster.startAll()
	owner.load(r.config)
	r.settle(monotonic())
}

func stopOwner(r *round) {
	r.more(40)
	owner := r.cluster.owner()
	r.strike(owner.config.Index)
	owner.signal(syscall.SIGSTOP)
	defer owner.signal(syscall.SIGCONT)
	// Others are granted something only by a new owner.
	r.settle(r.fault+int64(100*time.Millisecond), owner.config.Index)
	r.more(40)
	owner.signal(syscall.SIGCONT)
	r.settle(monotonic())
}

func cutOwner(r *round, how cut) {
	r.more(40)
	owner := r.cluster.owner()
	from := r.others(owner.config.Index)
	if r.random.IntN(2) == 0 {
		from = from[:len(from)-1] // callers in this process still reach it
	}
	r.strike(owner.config.Index)
	r.cluster.links.set(how, owner.config.Index, from...)
	defer r.cluster.links.set(whole, owner.config.Index, from...)
	r.settle(r.fault+int64(1500*time.Millisecond), owner.config.Index)
	r.more(40)
	r.cluster.links.set(whole, owner.config.Index, from...)
	r.settle(monotonic())
}

// cutFollower cuts a node off from the owner alone. If it leads the etcd servers the owner changes, and now one of the two is not
// reached by the other.
func cutFollower(r *round) {
	r.more(40)
	owner := r.cluster.owner()
	other := r.cluster.nodes[(owner.config.Index+1+r.random.IntN(2))%len(r.cluster.nodes)]
	how := []cut{refused, silent}[r.random.IntN(2)]
	r.strike(owner.config.Index, other.config.Index)
	r.cluster.links.set(how, owner.config.Index, other.config.Index)
	defer r.cluster.links.set(whole, owner.config.Index, other.config.Index)
	r.settle(r.fault+int64(1500*time.Millisecond), owner.config.Index, other.config.Index)
	r.more(60)
	r.cluster.links.set(whole, owner.config.Index, other.config.Index)
	r.settle(monotonic())
}

// resetAll resets every connection between the processes, which can all be made anew at once.
func resetAll(r *round) {
	r.more(40)
	r.strike()
	for i := range processes {
		r.cluster.links.set(refused, i, r.others(i)...)
	}
	for i := range processes {
		r.cluster.links.set(whole, i, r.others(i)...)
	}
	r.settle(monotonic())
}

func killAll(r *round) {
	r.more(40)
	r.strike()
	for _, p := range r.cluster.nodes {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range r.cluster.nodes {
		p.kill()
		<-p.done
	}
	r.died(len(r.cluster.nodes))
	r.cluster.startAll()
	for _, p := range r.cluster.nodes {
		p.load(r.config)
	}
	r.settle(monotonic())
}
