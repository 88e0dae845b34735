package durable_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// network carries the messages of a simulated fleet, in virtual time: it delays, loses and repeats them, and machines are cut off from
// each other for a while. What becomes of a message follows from the seed, the link, the instant, and what the message is, and from
// nothing else: so it does not depend on the order in which goroutines run at one instant.
type network struct {
	seed  uint64
	begin time.Time
	end   time.Duration // when the weather turns fine
	loss  int           // of 1000 messages
	slow  int           // of 1000 messages
	cuts  map[string][]span
	calls sync.WaitGroup

	mu    sync.Mutex
	same  map[message]int // how many messages there were that differ in nothing, at the last instant
	last  time.Duration
	notes []note
}

// span is a time of the simulation, from one instant to another.
type span struct{ from, to time.Duration }

// message is what tells a message from others.
type message struct {
	link, what string
	at         time.Duration
}

// note is a line of the trace of a network.
type note struct {
	message

	same int
	fate fate
}

// fate is what becomes of a message.
type fate struct {
	there, back     time.Duration // how long each way takes
	again           time.Duration // how much later it comes once more, 0 if it does not
	lost, unheard   bool          // it does not arrive, or its answer does not
	cutOff, cutBack bool          // for it is sent while the link is cut
}

// chance is the source of what an actor does by chance, and no other actor uses it.
func chance(seed uint64, actor string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(actor))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func newNetwork(seed uint64, end time.Duration) *network {
	r := chance(seed, "weather")
	return &network{
		seed: seed, begin: time.Now(), end: end, loss: []int{0, 2, 10, 60}[r.IntN(4)], slow: []int{0, 10, 100}[r.IntN(3)],
		cuts: map[string][]span{}, same: map[message]int{},
	}
}

// now is for how long the simulation has lasted.
func (n *network) now() time.Duration { return time.Since(n.begin) }

// cutNowAndThen cuts links, "machine>machine", or machines off: seldom, and mostly briefly.
func (n *network) cutNowAndThen(links ...string) {
	for _, link := range links {
		r := chance(n.seed, "cuts of "+link)
		for at := time.Duration(0); r.IntN(3) > 0; {
			at += time.Duration(r.Int64N(int64(n.end)))
			long := time.Duration(r.Int64N(int64(10 * time.Second)))
			if r.IntN(2) == 0 {
				long /= 20
			}
			if at >= n.end {
				break
			}
			n.cuts[link] = append(n.cuts[link], span{at, min(at+long, n.end)})
			at += long
		}
	}
}

// edges are the times at which a link may be cut, or be whole again.
func (n *network) edges(link string) (all []time.Duration) {
	from, to, _ := strings.Cut(link, ">")
	for _, name := range []string{link, from, to} {
		for _, s := range n.cuts[name] {
			all = append(all, s.from, s.to)
		}
	}
	slices.Sort(all)
	return all
}

// cut reports whether a link, "machine>machine", or one of its ends is cut at a time.
func (n *network) cut(link string, at time.Duration) bool {
	from, to, _ := strings.Cut(link, ">")
	for _, name := range []string{link, from, to} {
		if slices.ContainsFunc(n.cuts[name], func(s span) bool { return s.from <= at && at < s.to }) {
			return true
		}
	}
	return false
}

// fate is what becomes of the next message, and is noted in the trace.
func (n *network) fate(link, what string) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := message{link, what, n.now()}
	if m.at != n.last {
		clear(n.same)
		n.last = m.at
	}
	same := n.same[m]
	n.same[m]++
	r := chance(n.seed, fmt.Sprint(link, " ", what, " ", int64(m.at), " ", same))
	loss := n.loss
	if m.at >= n.end {
		loss = 0
	}
	f := fate{there: n.delay(r), back: n.delay(r), lost: r.IntN(1000) < loss, unheard: r.IntN(1000) < loss}
	if r.IntN(1000) < loss {
		if f.again = f.there + n.delay(r); r.IntN(2) == 0 {
			f.again += time.Duration(r.Int64N(int64(latest)))
		}
	}
	f.cutOff = n.cut(link, m.at+f.there)
	f.cutBack = n.cut(link, m.at+f.there+f.back)
	n.notes = append(n.notes, note{m, same, f})
	return f
}

// latest is how much later a message comes once more at most, about.
const latest = 5 * time.Second

// delay is how long a way takes: never the same time twice, so that hardly two things happen at one instant.
func (n *network) delay(r *rand.Rand) time.Duration {
	most := 3 * time.Millisecond
	if r.IntN(1000) < n.slow {
		most = 400 * time.Millisecond
	}
	return 50*time.Microsecond + time.Duration(r.Int64N(int64(most)))
}

// trace is a hash of the messages of all links whose names end so, and of what became of them, in the order of time. Those of one instant
// are in the order of their names.
func (n *network) trace(links string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.SortFunc(n.notes, func(a, b note) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.link, b.link), strings.Compare(a.what, b.what), cmp.Compare(a.same, b.same))
	})
	h := fnv.New64a()
	for i := range n.notes {
		if strings.HasSuffix(n.notes[i].link, links) {
			_, _ = fmt.Fprintln(h, n.notes[i])
		}
	}
	return h.Sum64()
}

// lane is one way of a connection: what was sent and has not been received.
type lane struct {
	mu    sync.Mutex
	more  sync.Cond
	all   [][]byte
	ended bool
}

func newLane() *lane {
	l := new(lane)
	l.more.L = &l.mu
	return l
}

func (l *lane) put(m []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return io.ErrClosedPipe
	}
	l.all = append(l.all, m)
	l.more.Signal()
	return nil
}

// get waits for the next message. Those that were sent at one instant, by requests that do not know of each other, come in an order that is
// the same each time.
func (l *lane) get() ([]byte, error) {
	l.mu.Lock()
	for len(l.all) == 0 && !l.ended {
		l.more.Wait()
	}
	l.mu.Unlock()
	time.Sleep(1) // until this instant is over
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return nil, io.EOF
	}
	slices.SortStableFunc(l.all, func(a, b []byte) int { return strings.Compare(gist(a), gist(b)) })
	m := l.all[0]
	l.all = l.all[1:]
	return m, nil
}

// gist is what a message of a node is about, without what is of no seed.
func gist(b []byte) string {
	m, err := durable.ParseMessage(b)
	if err != nil {
		return err.Error()
	}
	switch {
	case m.Call != nil && len(m.Call.Charges) > 0:
		c := &m.Call.Charges[0]
		return fmt.Sprint(m.Kind, " ", m.Call.Verb, " ", c.Policy, " ", c.N, " ", m.Call.Ask.Wait)
	case m.Result != nil:
		return fmt.Sprint(m.Kind, " ", m.Result.Reason)
	}
	return fmt.Sprint(m.Kind)
}

func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.Broadcast()
}

// streamEnd is one end of a connection.
type streamEnd struct {
	in, out *lane
	half    bool // Close ends what is received alone, as that of a stream of gRPC does at its server
}

var _ durable.Stream = (*streamEnd)(nil)

// Send implements [durable.Stream].
func (e *streamEnd) Send(m []byte) error { return e.out.put(m) }

// Receive implements [durable.Stream].
func (e *streamEnd) Receive() ([]byte, error) { return e.in.get() }

// Close implements [durable.Stream].
func (e *streamEnd) Close() error {
	e.in.end()
	if !e.half {
		e.out.end()
	}
	return nil
}

// stream is a connection over a link, in both directions. Its messages arrive in order; where one does not arrive, it breaks.
func (n *network) stream(link string) (near, far *streamEnd) {
	near, far = &streamEnd{in: newLane(), out: newLane()}, &streamEnd{in: newLane(), out: newLane(), half: true}
	from, to, _ := strings.Cut(link, ">")
	n.calls.Go(func() { n.carry(link, near.out, far.in, near.in, far.out) })
	n.calls.Go(func() { n.carry(to+">"+from, far.out, near.in, far.in, near.out) })
	return near, far
}

// carry carries messages from one lane to another. Where one does not arrive, these and others end.
func (n *network) carry(link string, from, to *lane, others ...*lane) {
	defer to.end()
	for {
		m, err := from.get()
		if err != nil {
			return
		}
		f := n.fate(link, gist(m))
		time.Sleep(f.there)
		if f.lost || f.cutOff {
			time.Sleep(f.back) // until that is noticed
			from.end()
			for _, l := range others {
				l.end()
			}
			return
		}
		if to.put(m) != nil {
			from.end()
			return
		}
	}
}

// callTime is how long a call may take before its caller gives it up.
const callTime = 500 * time.Millisecond

// call has f carried out at the other end of a link, once, twice or not at all, and returns what it has returned if that arrives before
// ctx ends. A caller that gives up does not keep the message from arriving. Only what may be repeated is.
func call[T any](ctx context.Context, n *network, link, what string, repeats bool, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("nothing was sent: %w", err)
	}
	fate := n.fate(link, what)
	got := make(chan answer, 1)
	n.calls.Go(func() {
		time.Sleep(fate.there)
		if fate.lost || fate.cutOff {
			return
		}
		var a answer
		a.value, a.err = f()
		if fate.again > 0 && repeats {
			n.calls.Go(func() {
				time.Sleep(fate.again)
				_, _ = f()
			})
		}
		time.Sleep(fate.back)
		if !fate.unheard && !fate.cutBack {
			got <- a
		}
	})
	timer := time.NewTimer(callTime)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	case <-timer.C:
		return none, fmt.Errorf("%w: no answer", store.ErrUnavailable)
	}
}
