package quotashare

import (
	"cmp"
	"math"
	"slices"
)

const (
	// headroom is by how much a rate should exceed what was demanded, so that the next little more passes.
	headroom = 1.125
	// spareWhenShort and spareOtherwise are parts of the rate that are not assigned: new buckets are filled from it.
	spareWhenShort = 1. / 32
	spareOtherwise = 1. / 16
	// floorPart is the part of the rate that all proxies without demand get together, so that they can begin.
	floorPart = 1. / 128
	// firstPart is the part of an equal part that a proxy gets before its first report, so that there is some for the next.
	firstPart = 3. / 4
	// turn is for how many of its reports a share keeps its place while others wait for one.
	turn = 4
)

// plan says for each share how much it should have: if more is demanded than there is, parts of it in proportion to what is
// demanded of each, so that a request has the same chance wherever it comes; otherwise what is demanded, and an equal part of
// the rest.
func (l *Ledger) plan(a *account, now int64) {
	there := a.perSecond(a.rate - a.others)
	open := 0
	for _, k := range a.links {
		if k.share.gone(now) {
			there -= a.perSecond(k.rate)
		} else {
			open++
		}
		k.target, k.work = 0, 0
	}
	there = max(there, 0)
	places := l.places(a, open, now)
	if len(places) == 0 {
		return
	}
	n := float64(len(places))
	floor := there * floorPart / n
	wanted := 0.
	for _, k := range places {
		k.work = there / n * firstPart
		if k.share.known {
			k.work = max(k.share.demand, floor)
		}
		for _, other := range k.share.links {
			if other != k && other.target > 0 {
				k.work = min(k.work, other.target)
			}
		}
		wanted += k.work
	}
	if rest := there*(1-spareOtherwise) - wanted*headroom; rest >= 0 {
		for _, k := range places {
			k.target = k.work*headroom + rest/n
		}
		return
	}
	if a.tokens < (a.burst-a.held)*a.unit/8 { // otherwise there is enough for new buckets
		there *= 1 - spareWhenShort
	}
	floors, busy := 0., 0.
	for _, k := range places {
		if k.work <= floor {
			floors += floor
		} else {
			busy += k.work
		}
	}
	for _, k := range places {
		k.target = floor
		if k.work > floor {
			k.target = max(k.work/busy*(there-floors), floor)
		}
	}
}

// places returns the links that can have a bucket: all, unless the burst is so small that there is not a permit for each. Then
// those that have one keep it for a while, and give way to those that have waited.
func (l *Ledger) places(a *account, open int, now int64) []*link {
	places := l.links[:0]
	for _, k := range a.links {
		if !k.share.gone(now) {
			places = append(places, k)
		}
	}
	l.links = places
	most := int(max(1, min(a.burst/2, math.MaxInt32)))
	if open <= most {
		return places
	}
	rank := func(k *link) int {
		s := k.share
		has := s.current() != nil && s.current().Kind == Tokens
		switch wants := !s.known || s.demand > 0; {
		case !wants:
			return 3
		case has && now-s.since < turn*max(s.interval, 1000):
			return 0
		case has:
			return 2
		}
		return 1
	}
	slices.SortFunc(places, func(x, y *link) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.share.since, y.share.since),
			cmp.Compare(x.share.position, y.share.position))
	})
	return places[:most]
}

// divide changes what shares have towards what they should have.
func (l *Ledger) divide(a *account, now int64) {
	a.settle(now)
	a.dirty, a.divided = false, now
	l.plan(a, now)
	need, starved, coming := 0., 0., 0.
	var less, more []*link
	for _, k := range a.links {
		s := k.share
		if s.gone(now) {
			continue
		}
		has, should := s.Assigned(), s.target()
		coming += max(0, a.perSecond(k.rate)-has)
		switch {
		case has > should*1.15:
			less = append(less, k)
		case should > has*1.01 && s.pressed():
			need += should - has
			if has < should*0.6 {
				starved += should - has
			}
			more = append(more, k)
		case should > has*1.5, s.poor():
			more = append(more, k)
		}
	}
	free := a.perSecond(a.rate - a.others - a.assigned)
	slices.SortFunc(less, func(x, y *link) int {
		return cmp.Or(cmp.Compare(y.share.Assigned()-y.share.target(), x.share.Assigned()-x.share.target()),
			cmp.Compare(x.share.position, y.share.position))
	})
	for _, k := range less {
		has := k.share.Assigned()
		switch {
		case need <= free+coming:
			continue
		case starved <= free+coming && !k.share.wastes():
			continue // what is on its way from one to another is of no use to either
		}
		if l.lower(k.share, now) {
			coming += has - k.share.Assigned()
		}
	}
	l.raise(a, more, need, max(free, 0), now)
}

// poor reports whether a share that is asked for more has a bucket that is much too small for what comes at random.
func (s *Share) poor() bool {
	g := s.current()
	return g != nil && g.Kind == Tokens && s.pressed() && 2*int64(g.MaxTokens) < min(s.wishes(g.perSecond()), enough)
}

// wastes reports whether a share has much more than it uses, or than it should have.
func (s *Share) wastes() bool {
	has := s.Assigned()
	return s.known && s.demand*1.1 < has || has > 1.5*s.target()
}

// mostPending is how many assignments of a share may be in force at a time for it to be changed.
const mostPending = 3

// enough tokens in a bucket for requests that come at random not to find it empty, and the tokens not a full bucket, too often.
const enough = 16

// lower gives a share what it should have, which is less than it has.
func (l *Ledger) lower(s *Share, now int64) bool {
	if len(s.grants) > mostPending {
		return false
	}
	s.settle(now)
	should := s.target()
	afford := s.affords()
	tokens := s.wishes(should)
	if s.known && s.demand < should { // what it does not need is for others
		tokens = min(tokens, max(afford/8, 1))
	}
	over := false
	for _, k := range s.links { // the limit was lowered: rather some tokens too many once than nothing at all
		over = over || k.account.assigned > k.account.rate-k.account.others || k.account.tokens < 0
	}
	if over && should > 0 {
		afford = max(afford, 1)
	}
	a := s.bucket(should, min(tokens, afford))
	if a.Kind == Deny && should > s.Assigned()/2 {
		return false // better a little too much than nothing
	}
	if a.Kind == Tokens && !s.fits(a) && !over {
		return false
	}
	s.tell(a, now)
	return true
}

// raise gives shares more, as far as there is a rate for it: first those that are asked for it.
func (l *Ledger) raise(a *account, more []*link, need, free float64, now int64) {
	part := 1.
	if need > free {
		part = free / need
	}
	slices.SortFunc(more, func(x, y *link) int {
		return cmp.Or(cmp.Compare(y.share.deficit(), x.share.deficit()), cmp.Compare(x.share.position, y.share.position))
	})
	for _, k := range more {
		s := k.share
		pressed := s.pressed()
		if len(s.grants) > mostPending || !pressed && (len(s.grants) > 1 || need > free) {
			continue
		}
		has, should := s.Assigned(), s.target()
		if pressed {
			should = has + (should-has)*part
		} else {
			a.settle(now)
			should = min(should, has+a.perSecond(a.rate-a.others-a.assigned)*(1-spareOtherwise))
		}
		if b := s.raised(a, should, now); b.Kind == Tokens && s.fits(b) {
			s.tell(b, now)
		}
	}
}

// raised is the bucket that a share gets which should have more, or one that denies if it is better left as it is.
func (s *Share) raised(a *account, should float64, now int64) Assignment {
	s.settle(now)
	has, pressed := s.Assigned(), s.pressed()
	tokens, afford := s.wishes(should), s.affords()
	if has > 0 { // some are left for proxies that are to have less, or had nothing
		afford -= min(int64(len(a.links)), a.burst/16)
	}
	least := min(tokens, enough)
	tokens = min(tokens, max(least, afford/2))
	if should < has*1.15 && (should < has*1.01 || afford < 4*least) {
		if !s.poor() || afford < least {
			return Assignment{Kind: Deny}
		}
		should = has
	}
	if !pressed && afford < 2*tokens || has > 0 && afford < least && afford < int64(s.current().MaxTokens) {
		return Assignment{Kind: Deny}
	}
	return s.bucket(should, min(tokens, afford))
}

// deficit is how large a part of what it should have a share lacks.
func (s *Share) deficit() float64 {
	should := s.target()
	if should <= 0 || !s.pressed() {
		return 0
	}
	return 1 - s.Assigned()/should
}
