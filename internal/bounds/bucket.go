package bounds

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/rangemax"
)

// Bucket is a limit whose permits come back evenly: a token bucket, or with a Rate of 0 a quota of which nothing comes back, or
// slots that come back when they are Returned.
type Bucket struct {
	// Rate is how many permits come back in a second, Burst how many there are at most, and at first.
	Rate, Burst float64
	// Slack is by how much the clock of the limit may have been set meanwhile.
	Slack time.Duration
}

// Allowed implements [Limit].
func (b Bucket) Allowed(span time.Duration) float64 { return b.Burst + b.Rate*(span+b.Slack).Seconds() }

func receivedAt(e *Event, at int64) int { return cmp.Compare(e.Received, at) }

// step is a moment at which a sum changes, or is looked at.
type step struct {
	at    int64
	order int // of what happens at the same moment
	event *Event
}

// Minted implements [Limit]. In all spans of time, what was asked for and answered within the span is at most the burst, what
// comes back meanwhile, and what may have been given back in it.
func (b Bucket) Minted(events []Event) Breach {
	var granted, given []*Event
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == Granted && e.N > 0:
			granted = append(granted, e)
		case e.Kind.gives() && e.N > 0:
			given = append(given, e)
		}
	}
	if len(granted) == 0 {
		return Breach{}
	}
	slices.SortStableFunc(granted, func(x, y *Event) int { return cmp.Compare(x.Received, y.Received) })
	rate := b.Rate / float64(time.Second)
	zero := granted[0].Sent
	// The spans end when something was received, in this order. For each end there is the sum of what counts in the span that
	// begins where the sweep is, which goes backwards.
	ends := rangemax.New(len(granted))
	steps := make([]step, 0, len(granted)+len(given))
	place := make(map[*Event]int, len(granted))
	for i, e := range granted {
		place[e] = i
		ends.Add(i, i+1, -rate*float64(e.Received-zero))
		steps = append(steps, step{e.Sent, 1, e})
	}
	for _, e := range given {
		steps = append(steps, step{e.Received, 0, e})
	}
	slices.SortStableFunc(steps, func(x, y step) int { return cmp.Or(cmp.Compare(y.at, x.at), cmp.Compare(x.order, y.order)) })
	var worst Breach
	most := b.Burst + rate*float64(b.Slack) + tolerance
	for _, s := range steps {
		if s.event.Kind != Granted {
			from, _ := slices.BinarySearchFunc(granted, s.event.Sent, receivedAt)
			ends.Add(from, len(granted), -float64(s.event.N))
			continue
		}
		at := place[s.event]
		ends.Add(at, len(granted), float64(s.event.N))
		// Spans that end before this event was answered do not have it, and their sums were looked at before.
		if over := ends.Most(at, len(granted)) + rate*float64(s.at-zero) - most; over > worst.Permits {
			end := granted[ends.MostAt(at, len(granted))].Received
			worst = Breach{Permits: over, From: time.Duration(s.at), To: time.Duration(end), Times: worst.Times}
		}
	}
	if worst.Broken() {
		worst.Times = 1
	}
	return worst
}

// Lost implements [Limit]. What was there when a request was refused is at least the least, over all times before, of the
// burst, what came back since, and what was given back since, without all that may have been taken since.
func (b Bucket) Lost(events []Event) Breach {
	var taken, refused, back []*Event
	for i := range events {
		switch e := &events[i]; {
		case e.Kind.taken() && e.N > 0:
			taken = append(taken, e)
		case e.Kind == Refused:
			refused = append(refused, e)
		case e.Kind.restores() && e.N > 0:
			back = append(back, e)
		}
	}
	slices.SortFunc(refused, func(x, y *Event) int { return cmp.Compare(x.Received, y.Received) })
	slices.SortFunc(taken, func(x, y *Event) int { return cmp.Compare(x.Received, y.Received) })
	byAsked := slices.Clone(taken)
	slices.SortFunc(byAsked, func(x, y *Event) int { return cmp.Compare(x.Sent, y.Sent) })
	slices.SortFunc(back, func(x, y *Event) int { return cmp.Compare(x.Received, y.Received) })
	// earliest is when the refusals from here on were asked for, at the earliest: what had come back by then counts for all of
	// them.
	earliest := make([]int64, len(refused))
	least := int64(math.MaxInt64)
	for i := len(refused) - 1; i >= 0; i-- {
		least = min(least, refused[i].Sent)
		earliest[i] = least
	}
	rate := b.Rate / float64(time.Second)
	rounding := 0.0
	if b.Rate > 0 {
		rounding = tolerance / 2
	}
	// For each time at which the last word on something taken had come, the sum of what may have been taken from then on.
	since := rangemax.New(len(taken))
	for i, e := range taken {
		since.Add(i, i+1, rate*float64(e.Received))
	}
	// after is the place of the first of those that were received later.
	after := func(at int64) int {
		i, _ := slices.BinarySearchFunc(taken, at+1, receivedAt)
		return i
	}
	place := make(map[*Event]int, len(taken))
	for i, e := range taken {
		place[e] = i
	}
	var worst Breach
	nextTaken, nextBack := 0, 0
	for i, r := range refused {
		for ; nextTaken < len(byAsked) && byAsked[nextTaken].Sent <= r.Received; nextTaken++ {
			since.Add(0, place[byAsked[nextTaken]]+1, float64(byAsked[nextTaken].N))
		}
		for ; nextBack < len(back) && back[nextBack].Received <= earliest[i]; nextBack++ {
			since.Add(0, after(back[nextBack].from()), -float64(back[nextBack].N))
		}
		here := after(r.Sent) // those before had been answered when it was asked
		level := b.Burst
		if here > 0 {
			level = min(level, b.Burst+rate*float64(r.Sent)-since.Most(0, here))
		}
		if here < len(taken) {
			level = min(level, b.Burst-(since.At(here)-rate*float64(taken[here].Received)))
		}
		if missing := level - float64(max(r.N, 1)) - rate*float64(b.Slack); missing >= rounding {
			worst.Times++
			if missing+1 > worst.Permits {
				worst.Permits, worst.From, worst.To = missing+1, time.Duration(r.Sent), time.Duration(r.Received)
			}
		}
	}
	return worst
}
