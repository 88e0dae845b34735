//go:build linux

package soak

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/bounds"
)

// late is how long a request whose answer was lost may still take permits: longer than any server is frozen or cut off, and than
// a server waits for anything.
const late = 30 * time.Second

// idle is how long nothing has happened to a key whose history is closed.
const idle = 3 * late

// mark names what permits are counted for: one key of a limit, for each process of a node if it is local.
type mark struct {
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	Node   string `json:"node,omitempty"` // such as "n2 after 3 starts", "" if all nodes share them
}

// group is what happened to the permits of a mark.
type group struct {
	mark   mark
	policy *policy
	limit  *limit
	events []bounds.Event
	last   int64
}

// totals are those of a policy, of histories that are closed and of those that are open.
type totals struct {
	requests, granted, refused, unknown int64
	returned                            float64
	allowed                             float64
	minted, lost                        float64
	mintedTimes, lostTimes              int
	groups                              int
}

// history is what clients saw.
type history struct {
	clocks   *clocks
	mu       sync.Mutex
	groups   map[mark]*group
	closed   map[string]*totals
	breaches []breach
	underWay map[*int64]struct{} // when what is not noted yet began
}

// What a breach can be.
const (
	whatMinted = "minted"
	whatLost   = "lost"
)

// breach is a bound that does not hold, with what happened around it.
type breach struct {
	mark

	What   string         `json:"what"` // whatMinted or whatLost
	Breach bounds.Breach  `json:"breach"`
	Holds  string         `json:"holds"`
	Events []bounds.Event `json:"events"`
}

func newHistory(c *clocks) *history {
	return &history{
		clocks: c, groups: make(map[mark]*group), closed: make(map[string]*totals), underWay: make(map[*int64]struct{}),
	}
}

// begin notes that something begins that may give permits back, which is noted before done is called.
func (h *history) begin() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.clocks.now()
	h.underWay[&at] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.underWay, &at)
	}
}

// known returns until when it is known what was given back.
func (h *history) known() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.clocks.now()
	for at := range h.underWay {
		known = min(known, *at)
	}
	return known
}

// add notes an event.
func (h *history) add(p *policy, l *limit, key, node string, e bounds.Event) {
	if p.scope != local {
		node = ""
	}
	m := mark{p.name, l.name, key, node}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[m]
	if g == nil {
		g = &group{mark: m, policy: p, limit: l}
		h.groups[m] = g
	}
	g.events = append(g.events, e)
	g.last = max(g.last, e.Received)
}

// marks tells which keys of a policy have an open history.
func (h *history) marks(policy string) (some []mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.groups {
		if m.Policy == policy {
			some = append(some, m)
		}
	}
	return some
}

// events are those of a mark.
func (h *history) events(m mark) []bounds.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.groups[m]; g != nil {
		return slices.Clone(g.events)
	}
	return nil
}

// check looks whether every bound holds, closes histories to which nothing more happens, and returns the totals of each
// policy. While requests are on their way only a permit too many can be told, and only of what was granted before the first of
// them began; whether any were lost is told of what is closed, or at the end.
func (h *history) check(end bool) map[string]*totals {
	known := h.known() // before the events are looked at: what was given back by then is among them
	if end {
		known = math.MaxInt64 // nothing is under way
	}
	h.mu.Lock()
	groups := make([]*group, 0, len(h.groups))
	for _, g := range h.groups {
		copied := *g
		groups = append(groups, &copied)
	}
	h.mu.Unlock()
	now := h.clocks.now()
	sums := make(map[string]*totals)
	h.mu.Lock()
	for name, t := range h.closed {
		copied := *t
		sums[name] = &copied
	}
	h.mu.Unlock()
	for _, g := range groups {
		over := end || now-g.last > int64(idle)
		t := h.judge(g, known, over)
		add(sums, g.policy.name, t)
		if !over || end {
			continue
		}
		h.mu.Lock()
		if of := h.groups[g.mark]; of != nil && len(of.events) == len(g.events) { // no other check has closed it
			delete(h.groups, g.mark)
			add(h.closed, g.policy.name, t)
		}
		h.mu.Unlock()
	}
	return sums
}

func add(to map[string]*totals, name string, t totals) {
	s := to[name]
	if s == nil {
		s = new(totals)
		to[name] = s
	}
	s.requests += t.requests
	s.granted += t.granted
	s.refused += t.refused
	s.unknown += t.unknown
	s.returned += t.returned
	s.allowed += t.allowed
	s.minted += t.minted
	s.lost += t.lost
	s.mintedTimes += t.mintedTimes
	s.lostTimes += t.lostTimes
	s.groups += t.groups
}

// judge looks at one history, of which it is known until a time what was given back.
func (h *history) judge(g *group, known int64, over bool) (t totals) {
	t.groups = 1
	first, last := int64(1)<<62, int64(0)
	for i := range g.events {
		e := &g.events[i]
		switch e.Kind {
		case bounds.Granted:
			t.granted += e.N
			first, last = min(first, e.Sent), max(last, e.Received)
		case bounds.Refused:
			t.refused++
		case bounds.Maybe:
			t.unknown += e.N
		case bounds.Returned, bounds.MayReturn, bounds.Unheard:
			if e.N < unlimited {
				t.returned += float64(e.N)
			}
		case bounds.Lapsed:
			if e.Received-e.Sent < int64(late) { // it is known that it was refused, and its Maybe is of while it was not
				t.unknown -= e.N
				t.requests--
			}
		case bounds.Charged:
		}
		if e.Kind == bounds.Granted || e.Kind == bounds.Refused || e.Kind == bounds.Maybe {
			t.requests++
		}
	}
	limit := g.policy.bound(g.limit, h.clocks, false)
	if last > 0 {
		t.allowed = limit.Allowed(time.Duration(last-first)) + t.returned
	}
	if g.limit != &g.policy.limits[0] { // a request is counted by the first limit alone
		t = totals{refused: t.refused}
	}
	if b := limit.Minted(before(g.events, known)); b.Broken() {
		t.minted, t.mintedTimes = b.Permits, b.Times
		h.broken(g, whatMinted, b)
	}
	if !over || !g.policy.exact() {
		return t
	}
	if b := g.policy.bound(g.limit, h.clocks, true).Lost(g.events); b.Broken() {
		t.lost, t.lostTimes = b.Permits, b.Times
		h.broken(g, whatLost, b)
	}
	return t
}

// before returns the events without the grants that were received at a time or later.
func before(events []bounds.Event, at int64) []bounds.Event {
	late := func(e bounds.Event) bool { return e.Kind == bounds.Granted && e.Received >= at }
	if !slices.ContainsFunc(events, late) {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), late)
}

// mostAround is how many events around a breach are kept, and mostBreaches how many breaches are.
const (
	mostAround   = 2000
	mostBreaches = 50
)

// broken keeps a breach, with what happened before and after.
func (h *history) broken(g *group, what string, b bounds.Breach) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.breaches {
		if h.breaches[i].mark == g.mark && h.breaches[i].What == what {
			return
		}
	}
	if len(h.breaches) >= mostBreaches {
		return
	}
	events := slices.Clone(g.events)
	slices.SortStableFunc(events, func(x, y bounds.Event) int { return cmp.Compare(x.Sent, y.Sent) })
	from, to := int64(b.From-2*late), int64(b.To+late/3)
	events = slices.DeleteFunc(events, func(e bounds.Event) bool { return e.Received < from || e.Sent > to })
	if len(events) > mostAround {
		events = events[len(events)-mostAround:]
	}
	h.breaches = append(h.breaches, breach{
		mark: g.mark, What: what, Breach: b, Events: events, Holds: g.limit.yaml(1),
	})
}

// broke are the breaches.
func (h *history) broke() []breach {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.breaches)
}

// forgery returns a granted or refused event of a quota that is a breach if it is noted the other way round: one of what.
// It returns nil if there is none. Requests whose responses were lost may have taken permits, and while there are such, one more
// or less may not be noticed.
func (h *history) forgery(what string) *bounds.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, noted := bounds.Refused, bounds.Granted
	if what == whatLost {
		was, noted = noted, was
	}
	for _, g := range h.groups {
		if g.policy.use != quotas {
			continue
		}
		limit := g.policy.bound(g.limit, h.clocks, what == whatLost)
		for i := range g.events {
			if g.events[i].Kind != was {
				continue
			}
			events := slices.Clone(g.events)
			events[i].Kind = noted
			if what == whatMinted && limit.Minted(events).Broken() || what == whatLost && limit.Lost(events).Broken() {
				return &g.events[i]
			}
		}
	}
	return nil
}

// forge notes an answer wrongly, if there is one of which that is a breach.
func (h *history) forge(what string) {
	if e := h.forgery(what); e != nil {
		e.Kind = bounds.Granted + bounds.Refused - e.Kind
	}
}

// clocks tell the time of clients, and how that on the wall differs from it.
type clocks struct {
	began         time.Time
	mu            sync.Mutex
	offset        int64
	lowest, highs int64
}

func newClocks() *clocks {
	c := &clocks{began: time.Now()}
	c.offset = c.ahead()
	c.lowest, c.highs = c.offset, c.offset
	return c
}

// now is the time in nanoseconds since the beginning. It never jumps.
func (c *clocks) now() int64 { return int64(time.Since(c.began)) }

// ahead is how far the clock on the wall is ahead of now.
func (c *clocks) ahead() int64 { return time.Now().Round(0).UnixNano() - c.now() }

// watch looks whether the clock on the wall has been set.
func (c *clocks) watch() {
	ahead := c.ahead()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lowest, c.highs = min(c.lowest, ahead), max(c.highs, ahead)
}

// wall returns how far the clock on the wall is ahead, and by how much more or less it was at times.
func (c *clocks) wall() (offset int64, slack time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset, time.Duration(max(c.highs-c.offset, c.offset-c.lowest)) + time.Millisecond
}

// sorted are the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
