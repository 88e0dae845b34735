package verify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/store"
)

// still is a limit whose permits do not come back while a test lasts: a window of ten years has begun long ago. A bucket would have
// less than a whole permit missing for a moment after others were given back, which is as it should be, and which no model here has.
func still(burst int64) weir.Limit {
	return weir.FixedWindow(weir.Per(burst, 3652*24*time.Hour))
}

// durableCall is a call, and durableState what it is made of: what is available, and which of the takings whose outcome is not
// known have happened.
type durableCall struct {
	op string
	n  int64
	id int // of one whose outcome is not known
}

type durableState struct {
	available int64
	taken     uint64
}

// durableModel is a counter of permits. What a crash burns, and whether a call has happened of which its caller does not know, is
// open.
func durableModel(limit, k int64) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{durableState{available: limit}} },
		Step: func(state, input, output any) []any {
			x, in, granted := state.(durableState), input.(durableCall), output.(bool) //nolint:forcetypeassert // as they were made
			bit := uint64(1) << in.id
			switch in.op {
			case "take":
				if granted != (x.available >= in.n) {
					return nil
				}
				if granted {
					x.available -= in.n
				}
				return []any{x}
			case "give":
				x.available += in.n
				return []any{x}
			case "may give":
				y := x
				y.available += in.n
				return []any{x, y}
			case "may take":
				if x.available < in.n {
					return []any{x}
				}
				y := x
				y.available -= in.n
				y.taken |= bit
				return []any{x, y}
			case "may be undone":
				if x.taken&bit == 0 {
					return []any{x}
				}
				y := x
				y.available += in.n
				y.taken &^= bit
				return []any{x, y}
			}
			var all []any // "crash"
			for burned := range min(k-1, x.available) + 1 {
				y := x
				y.available -= burned
				all = append(all, y)
			}
			return all
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
	}).ToModel()
}

// durablePlay is a history.
type durablePlay struct {
	mu      sync.Mutex
	start   time.Time
	history []porcupine.Operation
	unknown int
}

const forever = math.MaxInt64

func (p *durablePlay) note(client int, in durableCall, granted bool, began, ended int64) {
	p.history = append(p.history, porcupine.Operation{ClientId: client, Input: in, Output: granted, Call: began, Return: ended})
}

func (p *durablePlay) now() int64 { return time.Since(p.start).Nanoseconds() }

// acquire asks for permits and notes what has become of that.
func (p *durablePlay) acquire(ctx context.Context, client int, who spectest.Asked, r spectest.Request) spectest.Answer {
	began := p.now()
	a := spectest.Acquire(ctx, who, r)
	ended := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a.Reason {
	case weir.ReasonNone, weir.ReasonLimited:
		p.note(client, durableCall{op: "take", n: r.N}, a.Reason == weir.ReasonNone, began, ended)
	default: // each of what may have happened is a client of its own, as it has no end
		id := p.unknown % 64
		p.unknown++
		p.note(1000+2*p.unknown, durableCall{op: "may take", n: r.N, id: id}, false, began, forever)
		p.note(1001+2*p.unknown, durableCall{op: "may be undone", n: r.N, id: id}, false, began, forever)
	}
	return a
}

// settle ends a reservation.
func (p *durablePlay) settle(ctx context.Context, client int, who spectest.Asked, r store.Hold, actual int64) {
	began := p.now()
	var err error
	if actual == 0 {
		err = who.Settle(ctx, r, nil)
	} else {
		err = who.Settle(ctx, r, []int64{actual})
	}
	ended := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if back := r.Charges[0].N - actual; err == nil {
		p.note(client, durableCall{op: "give", n: back}, true, began, ended)
	} else {
		p.unknown++
		p.note(1000+2*p.unknown, durableCall{op: "may give", n: back}, true, began, forever)
	}
}

// client makes some calls.
func (p *durablePlay) client(client, calls int, who []spectest.Asked, rng *rand.Rand) {
	for range calls {
		asked := who[rng.IntN(len(who))]
		r := spectest.Request{Policy: "p", Limit: still(12), N: 1 + rng.Int64N(3)}
		switch rng.IntN(6) {
		case 0, 1:
			r.Hold = time.Hour
			if a := p.acquire(context.Background(), client, asked, r); a.Reason == weir.ReasonNone {
				p.settle(context.Background(), client, asked, a.Hold, rng.Int64N(r.N+1))
			}
		case 2:
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(300))*time.Microsecond)
			p.acquire(ctx, client, asked, r)
			cancel()
		default:
			p.acquire(context.Background(), client, asked, r)
		}
	}
}

// check counts a history with too many orders to try them all: another one is played instead, within reason.
func (p *durablePlay) check(t *testing.T, k int64, undecided *int) {
	t.Helper()
	switch result := porcupine.CheckOperationsTimeout(durableModel(12, k), p.history, 3*time.Second); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		if *undecided++; *undecided > mostUndecided {
			t.Fatalf("%d histories could not be decided", *undecided)
		}
	default:
		t.Fatalf("%v: %d operations:\n%v", result, len(p.history), p.history)
	}
}

// mostUndecided is how many histories of a test need not be decided: on a busy machine more calls overlap.
const mostUndecided = 100

func durableRounds(most int) int {
	if race.Enabled || testing.Short() {
		return most / 4
	}
	return most
}

// lasting is a cluster in memory whose owner stays one even where the machine stands still for a while.
func lasting(latency time.Duration) *durable.Memory {
	return must(durable.NewMemory(durable.MemoryOptions{Latency: latency, TTL: time.Hour}))
}

// TestDurableOwnerLinearizable: what callers of an owner see, of which some go away, could have been seen by one alone.
func TestDurableOwnerLinearizable(t *testing.T) {
	rounds, undecided, seed := durableRounds(400), 0, rand.Uint64()
	for round := 0; round-undecided < rounds; round++ {
		t.Logf("seed %d", seed+uint64(round))
		rng := rand.New(rand.NewPCG(seed+uint64(round), 0))
		k := []int64{1, 3, 0}[rng.IntN(3)]
		m := lasting(time.Duration(rng.IntN(2)) * 50 * time.Microsecond)
		e := m.Engine()
		o := must(durable.NewOwner(must(e.Campaign(t.Context(), "here")), durable.OwnerOptions{Reserve: k, WriteTimeout: time.Minute}))
		p := &durablePlay{start: time.Now()}
		var clients sync.WaitGroup
		for c := range 4 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			clients.Go(func() { p.client(c, 8, []spectest.Asked{o}, own) })
		}
		clients.Wait()
		if err := o.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		_ = e.Close()
		p.check(t, 1, &undecided)
	}
	t.Logf("%d of %d histories could not be decided", undecided, rounds)
}

// link is one end of a stream in memory.
type link struct {
	in, out chan []byte
	done    chan struct{}
	once    *sync.Once
}

func newLink() (a, b *link) {
	x, y, done, once := make(chan []byte, 16), make(chan []byte, 16), make(chan struct{}), new(sync.Once)
	return &link{x, y, done, once}, &link{y, x, done, once}
}

func (l *link) Send(m []byte) error {
	select {
	case l.out <- m:
		return nil
	case <-l.done:
		return io.ErrClosedPipe
	}
}

func (l *link) Receive() ([]byte, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-l.done:
		return nil, io.EOF
	}
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// nodes are some nodes of a cluster in memory, joined by links.
type nodes struct {
	memory  *durable.Memory
	mu      sync.Mutex
	all     map[string]*durable.Node
	engines map[string]*durable.MemoryEngine
	links   []*link
	serving sync.WaitGroup
}

func newNodes(o durable.MemoryOptions, owner durable.OwnerOptions, names ...string) *nodes {
	c := &nodes{memory: must(durable.NewMemory(o)), all: map[string]*durable.Node{}, engines: map[string]*durable.MemoryEngine{}}
	for _, name := range names {
		e := c.memory.Engine()
		n := must(durable.NewNode(durable.NodeOptions{
			Engine: e, Address: name, Owner: owner,
			Dial: func(_ context.Context, address string) (durable.Peer, error) {
				mine, other := newLink()
				c.mu.Lock()
				defer c.mu.Unlock()
				node := c.all[address]
				if node == nil {
					return nil, errors.New("not there yet")
				}
				c.links = append(c.links, mine)
				c.serving.Go(func() { _ = node.Serve(context.Background(), other) }) //nolint:contextcheck // it lasts until the link is cut
				return durable.NewStreamPeer(mine), nil
			},
		}))
		c.mu.Lock()
		c.all[name], c.engines[name] = n, e
		c.mu.Unlock()
	}
	return c
}

func (c *nodes) close() {
	for _, n := range c.all {
		_ = n.Close()
	}
	for _, e := range c.engines {
		_ = e.Close()
	}
	c.serving.Wait()
}

// TestDurableNodesLinearizable: what callers of two nodes see, while the owner is cut off so that the other one takes over, and
// connections are lost, could have been seen by one caller, but for what the crash burns and what callers do not know.
func TestDurableNodesLinearizable(t *testing.T) {
	rounds, undecided, seed := durableRounds(20), 0, rand.Uint64()
	moved := 0
	for round := 0; round < rounds+undecided || moved == 0; round++ { // where the machine is slow, there may be no owner yet
		t.Logf("seed %d", seed+uint64(round))
		rng := rand.New(rand.NewPCG(seed+uint64(round), 0))
		const k = 3
		c := newNodes(durable.MemoryOptions{Latency: 50 * time.Microsecond, TTL: 20 * time.Millisecond},
			durable.OwnerOptions{Reserve: k, WriteTimeout: 15 * time.Millisecond}, "a", "b")
		p := &durablePlay{start: time.Now()}
		who := []spectest.Asked{c.all["a"], c.all["b"]}
		var clients sync.WaitGroup
		for i := range 3 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			clients.Go(func() {
				p.client(2*i, 3, who, own)
				runtime.Gosched()
				p.client(2*i+1, 3, who, own)
			})
		}
		for range rng.IntN(2000) {
			runtime.Gosched()
		}
		owner, cuts := c.all["a"].Ownership().Address, 0
		if e := c.engines[owner]; e != nil && rng.IntN(4) > 0 {
			cuts++
			began := p.now()
			e.Cut(true)
			p.mu.Lock()
			p.note(999, durableCall{op: "crash"}, true, began, forever)
			p.mu.Unlock()
			moved++
		} else {
			c.mu.Lock()
			for _, l := range c.links {
				_ = l.Close()
			}
			c.mu.Unlock()
		}
		clients.Wait()
		// Where the machine stands still for longer than a write may take, an owner steps down by itself: that burns as much.
		watching, stop := context.WithCancel(t.Context())
		terms := (<-must(c.engines["a"].Watch(watching))).Epoch
		stop()
		for term := int64(2 + cuts); term <= terms; term++ {
			p.note(1000-int(term), durableCall{op: "crash"}, true, 0, forever)
		}
		for _, e := range c.engines {
			e.Cut(false)
		}
		c.close()
		p.check(t, k, &undecided)
	}
	t.Logf("%d of %d histories could not be decided, %d times the owner was cut off", undecided, rounds, moved)
}

// TestDurableNothingIsLeft: whatever ends while callers wait - their contexts, connections, owners, nodes - they are answered, and
// TestMain sees that no goroutine is left.
func TestDurableNothingIsLeft(t *testing.T) {
	for round := range durableRounds(24) {
		rng := rand.New(rand.NewPCG(uint64(round), 9))
		c := newNodes(durable.MemoryOptions{TTL: 20 * time.Millisecond}, durable.OwnerOptions{WriteTimeout: 20 * time.Millisecond}, "a", "b", "c")
		var callers sync.WaitGroup
		var answered atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 60 {
			node := c.all[[]string{"a", "b", "c"}[i%3]]
			callers.Go(func() {
				a := spectest.Acquire(ctx, node, spectest.Request{
					Policy: "p", Key: fmt.Sprint(i % 5), Limit: still(2), N: 1 + int64(i%2), Wait: time.Minute, Queue: 1000,
				})
				if a.Allowed || a.Reason != weir.ReasonNone {
					answered.Add(1)
				}
			})
		}
		for range rng.IntN(3000) {
			runtime.Gosched()
		}
		switch round % 4 {
		case 0:
			cancel()
		case 1:
			c.mu.Lock()
			for _, l := range c.links {
				_ = l.Close()
			}
			c.mu.Unlock()
		case 2:
			for _, e := range c.engines {
				e.Cut(true)
			}
		}
		closed := make(chan struct{})
		go func() {
			c.close()
			close(closed)
		}()
		callers.Wait()
		<-closed
		cancel()
		if n := answered.Load(); n != 60 {
			t.Errorf("round %d: %d of 60 callers were answered", round, n)
		}
	}
}

// TestDurableContention: 64 goroutines ask for one key, and for many, and get no more than the limit allows.
func TestDurableContention(t *testing.T) {
	for _, keys := range []int{1, 1000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			limit := weir.TokenBucket(weir.PerSecond(20_000), 5_000)
			m := lasting(300 * time.Microsecond)
			e := m.Engine()
			o := must(durable.NewOwner(must(e.Campaign(t.Context(), "here")), durable.OwnerOptions{WriteTimeout: time.Minute}))
			names := make([]string, keys)
			admitted := make([]atomic.Int64, keys)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			var next atomic.Uint64
			h := hammer(func() bool {
				i := int(next.Add(1) % uint64(keys))
				a := spectest.Acquire(context.Background(), o, spectest.Request{Policy: "p", Key: names[i], Limit: limit, N: 1})
				if a.Reason == weir.ReasonNone {
					admitted[i].Add(1)
				}
				return a.Reason == weir.ReasonNone
			})
			if err := o.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			_ = e.Close()
			most := limit.Permits() + int64(h.atMost.Seconds()*20_000) + 1
			for i := range admitted {
				if n := admitted[i].Load(); n > most {
					t.Errorf("key %d: %d were admitted, at most %d were allowed", i, n, most)
				}
			}
			if least := min(limit.Permits(), h.calls); keys == 1 && h.admitted < least {
				t.Errorf("%d of %d calls were admitted", h.admitted, h.calls)
			}
			t.Logf("%d calls, %d admitted in %v, %d writes", h.calls, h.admitted, h.atMost, m.Writes())
		})
	}
}
