package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// letPass lets time pass, which is virtual.
func letPass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// network is the way from one process to a store: it takes time in both directions, and breaks for good if the process dies.
type network struct {
	Home

	slowest time.Duration
	lock    sync.Mutex
	rng     *rand.Rand
	dead    atomic.Bool
	failing atomic.Bool
	lends   atomic.Int64
	takes   atomic.Int64
}

var errDead = errors.New("the process has died")

func (n *network) delay() {
	if n.slowest > 0 {
		n.lock.Lock()
		d := time.Duration(n.rng.Int64N(int64(n.slowest)))
		n.lock.Unlock()
		letPass(d)
	}
}

// call runs f with a delay before and after it. What f does takes effect even if its answer is lost.
func (n *network) call(f func() error) error {
	if n.dead.Load() {
		return errDead
	}
	if n.failing.Load() {
		return ErrUnavailable
	}
	n.delay()
	err := f()
	n.delay()
	if n.dead.Load() {
		return errDead
	}
	return err
}

func (n *network) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode != ModeTake && ask.Mode != ModeLend {
		return n.Home.Do(ctx, ask, charges, decisions)
	}
	asked := &n.takes
	if ask.Mode == ModeLend {
		asked = &n.lends
	}
	asked.Add(1)
	var h Hold
	err := n.call(func() (err error) {
		h, err = n.Home.Do(ctx, ask, charges, decisions)
		return err
	})
	return h, err
}

func (n *network) Settle(ctx context.Context, h Hold, actual []int64) error {
	return n.call(func() error { return n.Home.Settle(ctx, h, actual) })
}

// shifted is the clock of a process that shows another time than others, and runs a number of times slower.
type shifted struct {
	start time.Time
	by    int64
	slow  int64
}

func (c shifted) Now() int64 { return int64(time.Since(c.start))/c.slow + c.by }

func (c shifted) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d*time.Duration(c.slow), f).Stop
}

// admission is a request that was granted between two times.
type admission struct{ from, to, n int64 }

// fleet are processes that share a limit.
type fleet struct {
	testing.TB

	store *Memory
	nodes []*Leased
	nets  []*network
	limit weir.Limit
	lock  sync.Mutex
	seen  []admission
	short int64 // permits that were refused
}

// newFleet makes processes, the clocks of which are an hour apart and run slow times slower than that of the store. Every other
// one publishes a copy of its key after each decision.
func newFleet(t testing.TB, limit weir.Limit, nodes int, o LeasedOptions, slowest time.Duration, slow int64) *fleet {
	t.Helper()
	m, err := NewMemory(MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{TB: t, store: m, limit: limit}
	for i := range nodes {
		net := &network{Home: m, slowest: slowest, rng: rand.New(rand.NewPCG(uint64(i), 7))}
		o.Clock = shifted{time.Now(), int64(i-1) * int64(time.Hour), slow}
		l, err := NewLeased(net, o)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			l.patience = 1
		}
		f.nodes, f.nets = append(f.nodes, l), append(f.nets, net)
	}
	return f
}

// request asks a node for n permits, and notes when it was granted.
func (f *fleet) request(ctx context.Context, node int, n int64) (allowed bool) {
	charges, decisions := []Charge{{Policy: "p", Key: "k", Limit: f.limit, N: n}}, make([]weir.Decision, 1)
	from := time.Now().UnixNano()
	err := Take(ctx, f.nodes[node], charges, decisions)
	switch {
	case err == nil, errors.Is(err, errDead), errors.Is(err, ErrClosed), ctx.Err() != nil, errors.Is(err, ErrUnavailable):
	default:
		f.Error(err)
	}
	if err != nil {
		return false
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if decisions[0].Allowed {
		f.seen = append(f.seen, admission{from, time.Now().UnixNano(), n})
	} else {
		f.short += n
	}
	return decisions[0].Allowed
}

// total is how many permits were granted.
func (f *fleet) total() (n int64) {
	for _, a := range f.seen {
		n += a.n
	}
	return n
}

// close ends all processes, and looks whether everything has come to an end.
func (f *fleet) close() {
	for i, l := range f.nodes {
		if err := l.Close(); err != nil && !f.nets[i].dead.Load() {
			f.Error(err)
		}
	}
}

// leasedLimits are limits of every algorithm that can be leased, the values of which are random.
func leasedLimits(rng *rand.Rand) []weir.Limit {
	n := 64 + rng.Int64N(200)
	window := time.Duration(200+rng.Int64N(2000)) * time.Millisecond
	return []weir.Limit{
		weir.TokenBucket(weir.Per(50+rng.Int64N(400), time.Second), n),
		weir.TokenBucket(weir.Per(7, 10*time.Second), n),
		weir.FixedWindow(weir.Per(n, window)),
		weir.SlidingWindow(weir.Per(n, window/8*8), 8),
		weir.SlidingCounter(weir.Per(n, window)),
		weir.CalendarWindow(2*n, algo.Calendar{Unit: algo.CalendarMinute}),
	}
}

// traffic has each node asked by some goroutines, until the time is over: evenly, or by all at once with a pause between, which is
// the tide.
func (f *fleet) traffic(t *testing.T, rng *rand.Rand, length, tide time.Duration) {
	t.Helper()
	perNode := 1 + rng.IntN(3)
	pause := int64(length) / (100 + rng.Int64N(300)) * int64(len(f.nodes)*perNode) / 4
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for node := range f.nodes {
		for range perNode {
			own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
			all.Go(func() { f.client(t, own, node, pause, end, tide) })
		}
	}
	all.Wait()
}

// edge is the time between two edges of windows, or of segments; 0 of a bucket.
func (f *fleet) edge() time.Duration {
	switch f.limit.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return 0
	case weir.AlgorithmSlidingWindow:
		return f.limit.Rate().Period / time.Duration(f.limit.Segments())
	case weir.AlgorithmCalendarWindow:
		return time.Minute
	default:
		return f.limit.Rate().Period
	}
}

// hoard has all nodes hold blocks, keep them for a while, and then spend them, and all that there is, at once. Where there are windows
// one ends meanwhile. It returns how much was granted in the end.
func (f *fleet) hoard(t *testing.T, term time.Duration, pauses int, pause time.Duration) (burst int64) {
	t.Helper()
	letPass(2 * time.Second)
	if edge := f.edge(); edge > 0 {
		now := time.Duration(time.Now().UnixNano())
		letPass(edge - (now+time.Duration(pauses)*pause/2)%edge)
	}
	f.each(func(node int) {
		for range 8 {
			f.request(t.Context(), node, 1)
			letPass(term / 1000)
		}
		for range pauses {
			letPass(pause)
			f.request(t.Context(), node, 1)
		}
	})
	before := f.total()
	f.each(func(node int) {
		more := 2 * len(f.nodes)
		for i := 0; i < 500 && more > 0; i++ {
			if !f.request(t.Context(), node, 1) {
				more--
				letPass(time.Microsecond)
			}
		}
	})
	return f.total() - before
}

// each has f do something for all nodes at the same time.
func (f *fleet) each(do func(node int)) {
	var all sync.WaitGroup
	for node := range f.nodes {
		all.Go(func() { do(node) })
	}
	all.Wait()
}

// client asks a node now and then, and as often as it can for some time; it gives some permits back, and loses patience.
func (f *fleet) client(t *testing.T, rng *rand.Rand, node int, pause int64, end time.Time, tide time.Duration) {
	t.Helper()
	burst := 0
	for time.Now().Before(end) && !f.nets[node].dead.Load() {
		n := 1 + rng.Int64N(3)
		if rng.IntN(30) == 0 {
			n = 1 + rng.Int64N(40)
		}
		ctx, cancel := t.Context(), func() {}
		if rng.IntN(10) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(1+rng.Int64N(int64(30*time.Millisecond))))
		}
		if rng.IntN(20) == 0 {
			f.undone(t, node, n)
		} else {
			f.request(ctx, node, n)
		}
		cancel()
		if burst--; burst > 0 {
			letPass(time.Duration(rng.Int64N(int64(time.Millisecond))))
			continue
		}
		if tide > 0 {
			burst = 30
			letPass(tide - time.Duration(time.Now().UnixNano())%tide)
			continue
		}
		if burst = 0; rng.IntN(10) == 0 {
			burst = 20
		}
		letPass(time.Duration(rng.Int64N(pause)))
	}
}

// undone takes permits and gives them back after a while.
func (f *fleet) undone(t *testing.T, node int, n int64) {
	t.Helper()
	l := f.nodes[node]
	since := l.now()
	charges, decisions := []Charge{{Policy: "p", Key: "k", Limit: f.limit, N: n}}, make([]weir.Decision, 1)
	if err := Take(t.Context(), l, charges, decisions); err == nil && decisions[0].Allowed {
		letPass(time.Duration(n) * 10 * time.Millisecond)
		l.giveBackSince(charges, since)
	}
}
