//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/bounds"
)

// mostInFlight is how many requests are on their way at a time. Those of which there is no room are not made, and are counted.
const mostInFlight = 512

// patience is how long a client waits for an answer, beside what it is ready to wait for permits.
const patience = 3 * time.Second

// traffic makes requests.
type traffic struct {
	all     []*policy
	weights int
	nodes   []*node
	history *history
	clocks  *clocks
	hold    time.Duration // how long reservations last
	room    chan struct{}
	work    sync.WaitGroup

	asked, skipped atomic.Int64
	mu             sync.Mutex
	errors         map[string]int64
	wrong          []string
	generations    map[string]int
	refusals       map[string]int // of the generation
}

func newTraffic(all []*policy, nodes []*node, h *history, hold time.Duration) *traffic {
	t := &traffic{
		all: all, nodes: nodes, history: h, clocks: h.clocks, hold: hold, room: make(chan struct{}, mostInFlight),
		errors: make(map[string]int64), generations: make(map[string]int), refusals: make(map[string]int),
	}
	for _, p := range all {
		t.weights += p.weight
	}
	return t
}

// run makes so many requests a second until ctx ends, and waits for their answers.
func (t *traffic) run(ctx context.Context, rate float64, random *rand.Rand) {
	defer t.work.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun, made := t.clocks.now(), 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		due := int(float64(t.clocks.now()-begun) / 1e9 * rate)
		if due-made > int(rate) { // the machine was asleep: what was missed is not made up for
			made = due - int(rate/10)
		}
		for ; made < due; made++ {
			t.one(ctx, random)
		}
	}
}

// one makes a request. All that is random about it is decided here, in one order.
func (t *traffic) one(ctx context.Context, random *rand.Rand) {
	p := t.choose(random)
	r, key := t.request(p, random)
	seed := random.Uint64()
	var up []*node
	for _, n := range t.nodes {
		if n.use() != nil {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return
	}
	n := up[random.IntN(len(up))]
	select {
	case t.room <- struct{}{}:
	default:
		t.skipped.Add(1)
		return
	}
	t.work.Go(func() {
		defer func() { <-t.room }()
		own := rand.New(rand.NewPCG(seed, 1))               //nolint:gosec // it makes a run repeatable
		t.do(context.WithoutCancel(ctx), n, p, key, r, own) // it is answered also if the run is over
	})
}

func (t *traffic) choose(random *rand.Rand) *policy {
	at := random.IntN(t.weights)
	for _, p := range t.all {
		if at -= p.weight; at < 0 {
			return p
		}
	}
	return t.all[0]
}

// request is one that suits the policy.
func (t *traffic) request(p *policy, random *rand.Rand) (r *request, key string) {
	key = "hot"
	r = &request{}
	n := 1 + random.Int64N(p.most)
	switch p.use {
	case takes, second, overridden:
	case refunds:
		switch x := random.IntN(100); {
		case x < 3 && p.scope == local:
			r.verb = refund
		case x == 3:
			r.verb = resets
		}
	case waits:
		if random.IntN(3) > 0 {
			r.wait = time.Duration(20+random.IntN(800)) * time.Millisecond
		}
	case reserves, holds:
		r.verb, r.expires = reserve, t.hold
	case quotas, settled:
		if p.use == settled {
			r.verb, r.expires = reserve, t.hold
		}
		t.mu.Lock()
		key = fmt.Sprint("k", t.generations[p.name])
		t.mu.Unlock()
	case both:
		if random.IntN(5) > 1 {
			other := t.after(p)
			r.verb = takeAll
			r.charges = []charge{{p.name, key, n}, {other.name, key, 1 + random.Int64N(other.most)}}
			return r, key
		}
	case spreads:
		key = fmt.Sprint("k", random.IntN(6000))
	}
	r.charges = []charge{{p.name, key, n}}
	return r, key
}

// after is the policy behind another one.
func (t *traffic) after(p *policy) *policy {
	for i := range t.all {
		if t.all[i] == p {
			return t.all[i+1]
		}
	}
	return p
}

func (t *traffic) policy(name string) *policy {
	for _, p := range t.all {
		if p.name == name {
			return p
		}
	}
	return nil
}

// ask sends a request by one of the fronts that speak of it.
func (t *traffic) ask(ctx context.Context, c *clients, r *request, random *rand.Rand) (a answer, sent, received int64) {
	var fit []front
	for _, f := range c.fronts {
		if f.speaks(r) {
			fit = append(fit, f)
		}
	}
	f := fit[random.IntN(len(fit))]
	ctx, cancel := context.WithTimeout(ctx, patience+r.wait)
	defer cancel()
	sent = t.clocks.now()
	a = f.do(ctx, r)
	received = t.clocks.now()
	t.asked.Add(1)
	if a.outcome != granted && a.outcome != limited {
		t.failed(a, r)
	}
	return a, sent, received
}

// mostWrong is how many wrong answers are kept.
const mostWrong = 20

func (t *traffic) failed(a answer, r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reason := a.reason
	if a.outcome == wrong {
		if len(t.wrong) < mostWrong {
			t.wrong = append(t.wrong, fmt.Sprintf("%v: %s", r.charges, a.reason))
		}
		reason = "wrong answer"
	}
	t.errors[reason]++
}

// do makes a request, settles what it has reserved, and notes what happened.
func (t *traffic) do(ctx context.Context, n *node, p *policy, key string, r *request, random *rand.Rand) {
	c := n.use()
	if c == nil {
		return
	}
	who := c.who
	defer t.history.begin()()
	a, sent, received := t.ask(ctx, c.clients, r, random)
	switch r.verb {
	case refund, resets:
		t.gaveBack(p, key, who, r, a, sent, received)
		return
	case take, takeAll, reserve, commit, cancel:
	}
	for _, ch := range r.charges {
		q := t.policy(ch.policy)
		for i := range q.limits {
			t.took(q, &q.limits[i], ch, who, r, a, sent, received)
		}
	}
	if a.outcome == limited && (p.use == quotas || p.use == settled) {
		t.usedUp(p, key)
	}
	if r.verb == reserve && a.outcome == granted {
		t.settle(ctx, c.clients, p, who, r.charges[0], a, sent, received, random)
	}
}

// took notes what a request has taken of a limit.
func (t *traffic) took(p *policy, l *limit, c charge, who string, r *request, a answer, sent, received int64) {
	e := bounds.Event{Sent: sent, Received: received, N: c.n}
	switch a.outcome {
	case granted:
		e.Kind = bounds.Granted
	case limited:
		if a.binding != p.name && a.binding != p.name+"/"+l.name {
			if t.mixed(r) { // what is kept in two places is taken in one and given back until the other one has granted it too
				back := bounds.Event{Sent: sent, Received: received, N: c.n, Kind: bounds.Lapsed}
				t.history.add(p, l, c.key, who, back)
				e.Kind = bounds.Maybe
				t.history.add(p, l, c.key, who, e)
			}
			return
		}
		e.Kind = bounds.Refused
	case unknown:
		e.Kind, e.Received = bounds.Maybe, sent+int64(late+r.wait)
		if r.verb == reserve {
			t.history.add(p, l, c.key, who, bounds.Event{
				Sent: sent, Received: e.Received + int64(r.expires+late), N: c.n, Kind: bounds.Lapsed,
			})
		}
	case refused, unreached, wrong:
		return
	}
	t.history.add(p, l, c.key, who, e)
}

// mixed reports whether a request is for permits that are kept in several places.
func (t *traffic) mixed(r *request) bool {
	for _, c := range r.charges {
		if t.policy(c.policy).scope != t.policy(r.charges[0].policy).scope {
			return true
		}
	}
	return false
}

// gaveBack notes what a refund or a reset has given back.
func (t *traffic) gaveBack(p *policy, key, who string, r *request, a answer, sent, received int64) {
	e := bounds.Event{Sent: sent, Received: received, N: r.charges[0].n, Kind: bounds.Returned}
	if r.verb == resets {
		e.N, e.Kind = p.limits[0].burst, bounds.MayReturn
	}
	switch a.outcome {
	case granted:
	case unknown:
		e.Kind, e.Received = bounds.MayReturn, sent+int64(late)
	case limited, refused, unreached, wrong:
		return
	}
	t.history.add(p, &p.limits[0], key, who, e)
}

// usedUp goes on to the next key of a quota once several requests were refused.
func (t *traffic) usedUp(p *policy, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if key != fmt.Sprint("k", t.generations[p.name]) {
		return
	}
	if t.refusals[p.name]++; t.refusals[p.name] >= 5 {
		t.refusals[p.name] = 0
		t.generations[p.name]++
	}
}

// settle ends a reservation after a while, or forgets it.
func (t *traffic) settle(
	ctx context.Context, c *clients, p *policy, who string, ch charge, made answer, sent, received int64, random *rand.Rand,
) {
	l := &p.limits[0]
	expires := max(made.expires, t.hold)
	// A node that ends in order cancels what is open, so it may be any time from now on.
	forgotten := bounds.Event{Sent: sent, Received: received + int64(expires+late), N: ch.n, Kind: bounds.Unheard, Since: sent}
	// While it is not known when a reservation expires little can be told of others, so there are times in which none is
	// forgotten.
	if sent%int64(4*late) > int64(4*late-late/3) && random.IntN(4) == 0 {
		t.history.add(p, l, ch.key, who, forgotten)
		return
	}
	timer := time.NewTimer(time.Duration(20+random.IntN(500)) * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	r := &request{verb: commit, charges: []charge{ch}, id: made.id, actual: random.Int64N(ch.n + ch.n/4 + 1)}
	if random.IntN(4) == 0 {
		r.verb = cancel
	}
	a, from, to := t.ask(ctx, c, r, random)
	back, more := ch.n-r.actual, int64(0)
	switch {
	case r.verb == cancel || l.slots:
		back = ch.n
	case back < 0:
		back, more = 0, -back
	}
	e := bounds.Event{Sent: from, Received: to, N: back, Kind: bounds.Returned, Since: sent}
	done := a.outcome
	if done == granted && p.scope != local && time.Duration(to-sent) > made.expires/2 {
		// The store may have settled the hold after the server had taken it back, without a word to the client.
		done = unknown
	}
	switch done {
	case granted:
		if more > 0 {
			t.history.add(p, l, ch.key, who, bounds.Event{Sent: from, Received: to, N: more, Kind: bounds.Charged})
		}
	case refused: // it has expired before
		e = bounds.Event{Sent: sent, Received: to, N: ch.n, Kind: bounds.Unheard}
	case unknown, unreached, limited, wrong:
		e = forgotten
		if r.verb == commit && !l.slots && done != unreached {
			e.Kind = bounds.MayReturn // what was needed may have been taken for good
			if more > 0 {
				t.history.add(p, l, ch.key, who, bounds.Event{
					Sent: from, Received: to + int64(late), N: more, Kind: bounds.Maybe,
				})
			}
		}
	}
	if e.N > 0 {
		t.history.add(p, l, ch.key, who, e)
	}
}

// trouble tells what went wrong, by how often.
func (t *traffic) trouble() (errors map[string]int64, wrong []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	errors = make(map[string]int64, len(t.errors))
	for k, v := range t.errors {
		if len(k) > 60 {
			k = strings.ToValidUTF8(k[:60], "")
		}
		errors[k] += v
	}
	return errors, append([]string(nil), t.wrong...)
}
