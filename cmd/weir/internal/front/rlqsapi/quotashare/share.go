package quotashare

import (
	"math"
	"net/netip"
	"time"
)

// Kind is what an [Assignment] does.
type Kind uint8

const (
	// Tokens holds the proxy to a token bucket.
	Tokens Kind = iota
	// Deny has it refuse everything.
	Deny
	// Allow has it allow everything.
	Allow
	// Abandon has it forget the bucket, and stop to report of it.
	Abandon
)

// Assignment is what a proxy is assigned.
type Assignment struct {
	Kind Kind
	// MaxTokens is the capacity of the bucket, TokensPerFill what comes back in FillSeconds. All are at least 1 with Tokens,
	// and 0 otherwise.
	MaxTokens, TokensPerFill uint32
	FillSeconds              int64
	// TTL is how long it may be used, in whole seconds. It is 0 with Abandon.
	TTL time.Duration
}

func (a Assignment) perSecond() float64 {
	if a.Kind != Tokens {
		return 0
	}
	return float64(a.TokensPerFill) / float64(a.FillSeconds)
}

func (a Assignment) same(b Assignment) bool {
	a.TTL, b.TTL = 0, 0
	return a == b
}

// grant is an assignment that may be in force.
type grant struct {
	Assignment

	first, last int64 // when it was sent for the first time, and last
	ends        int64 // the earliest end of what was sent last
	until       int64 // the latest end of all that was sent
	lastUntil   int64 // the latest end of what was sent last
}

// Share is what one proxy has of the accounts that a bucket is held to.
type Share struct {
	// Owner is whatever the caller likes.
	Owner any

	ledger  *Ledger
	proxy   netip.Prefix
	links   []*link
	grants  []grant // in the order in which they were sent
	blanket Kind    // where there is no account: Allow or Deny
	closed  bool

	demand   float64 // in requests a second
	known    bool    // that demand was reported
	denied   float64 // the part of the requests that is denied
	uncut    float64 // requests that were reported but are not yet in demand
	refused  float64 // those of them that were denied
	reported int64
	counted  int64 // when demand was reckoned last
	interval int64 // between reports; 0 before the second one
	busy     int64 // when a report last told of a request
	since    int64 // since when it has had tokens, or has had none
	sent     int64 // when something was sent last
	position int   // in the shares of the ledger
}

// current is what a proxy has been told last.
func (s *Share) current() *grant {
	if n := len(s.grants); n > 0 {
		return &s.grants[n-1]
	}
	return nil
}

// Assigned is the rate that the proxy was assigned last, in permits a second: 0 if it has none.
func (s *Share) Assigned() float64 {
	if g := s.current(); g != nil {
		return g.perSecond()
	}
	return 0
}

// settle brings all accounts of the share up to date.
func (s *Share) settle(now int64) {
	for _, k := range s.links {
		k.account.settle(now)
	}
}

func (s *Share) recount() {
	for _, k := range s.links {
		k.recount()
	}
}

// expire forgets what can no longer be in force.
func (s *Share) expire(now int64) {
	kept := 0
	for i := range s.grants {
		if s.grants[i].until > now {
			s.grants[kept] = s.grants[i]
			kept++
		}
	}
	s.keep(s.grants[:kept], now)
}

// prove forgets what a report that has come now proves to be replaced.
func (s *Share) prove(now int64) {
	before := now - 2*s.ledger.grace - 1
	from := 0
	for i := range s.grants {
		g := &s.grants[i]
		if g.first <= before {
			from = i
		}
		if g.last <= before {
			g.until = g.lastUntil
		}
	}
	if from > 0 {
		s.keep(append(s.grants[:0], s.grants[from:]...), now)
	}
}

func (s *Share) keep(grants []grant, now int64) {
	if len(grants) == len(s.grants) {
		return
	}
	s.settle(now)
	s.grants = grants
	s.recount()
	for _, k := range s.links {
		k.account.dirty = true
	}
}

// affords is how many tokens all accounts have left for a new bucket.
func (s *Share) affords() int64 {
	most := int64(math.MaxUint32)
	for _, k := range s.links {
		most = min(most, k.account.affords())
	}
	return most
}

// fits reports whether all accounts have the rate for it.
func (s *Share) fits(a Assignment) bool {
	for _, k := range s.links {
		more := k.account.counts(a.TokensPerFill, a.FillSeconds) - k.rate
		if more > 0 && k.account.assigned+k.account.others+more > k.account.rate {
			return false
		}
	}
	return true
}

// ttl is how long the next assignment may be used: so long that one report may be lost.
func (s *Share) ttl() time.Duration {
	l := s.ledger
	if s.interval == 0 {
		return l.options.FirstTTL
	}
	ttl := time.Duration(2*(s.interval+l.grace)) * time.Millisecond
	if rest := ttl % time.Second; rest > 0 {
		ttl += time.Second - rest
	}
	return min(max(ttl, time.Second), l.options.LongestTTL)
}

// renewable reports whether a proxy which gets its assignment again now keeps the bucket it has.
func (s *Share) renewable(now int64) bool {
	g := s.current()
	return g != nil && now+1+s.ledger.grace < g.ends
}

// tell sends an assignment. If it is a bucket that may be a new one for the proxy, its tokens are taken from the accounts, which
// the caller has made sure to have them.
func (s *Share) tell(a Assignment, now int64) {
	a.TTL = s.ttl()
	ttl := a.TTL.Milliseconds()
	ends, until := now+ttl, now+1+ttl+s.ledger.grace
	s.settle(now)
	g := s.current()
	switch {
	case g != nil && g.same(a) && (a.Kind != Tokens || s.renewable(now)):
		g.TTL, g.last, g.ends, g.lastUntil = a.TTL, now, ends, until
		g.until = max(g.until, until)
	default:
		if had, has := g != nil && g.Kind == Tokens, a.Kind == Tokens; had != has {
			s.since = now
		}
		s.grants = append(s.grants, grant{a, now, now, ends, until, until})
		for _, k := range s.links {
			k.account.tokens -= int64(a.MaxTokens) * k.account.unit
		}
		s.recount()
		s.ledger.schedule(s, now)
	}
	s.sent = now
	s.ledger.options.Send(s, a)
}

// bucket is an assignment of at most so many tokens a second, and at most so many tokens. It is one of Deny if that is nothing.
func (s *Share) bucket(perSecond float64, tokens int64) Assignment {
	if len(s.links) == 0 {
		return Assignment{Kind: s.blanket}
	}
	of := s.links[0].account
	for _, k := range s.links[1:] { // the strictest says in which units
		if k.target < s.links[0].target {
			of = k.account
		}
	}
	n := of.steps(perSecond)
	if n < 1 || tokens < 1 {
		return Assignment{Kind: Deny}
	}
	return Assignment{
		Kind: Tokens, MaxTokens: uint32(min(tokens, math.MaxUint32)), TokensPerFill: uint32(n), FillSeconds: of.seconds,
	}
}

// wishes is how many tokens a bucket of this rate should hold: of two thirds of the burst one half is divided in equal parts, as
// it takes so many tokens to even out what comes at random whatever the rate is, and one half as the rate.
func (s *Share) wishes(perSecond float64) int64 {
	most := int64(math.MaxUint32)
	for _, k := range s.links {
		if a := k.account; a.rate > 0 {
			part := perSecond/a.perSecond(a.rate) + 1/float64(len(a.links))
			most = min(most, int64(float64(a.burst)/3*part))
		}
	}
	return max(most, 1)
}

// gone reports whether the stream has ended, or seems to be dead: nothing has been reported for so long that what was assigned
// has expired, or is about to.
func (s *Share) gone(now int64) bool { return s.closed || now-s.reported > s.ttl().Milliseconds() }

// target is the rate that the share should have, in tokens a second.
func (s *Share) target() float64 {
	t := math.Inf(1)
	for _, k := range s.links {
		t = min(t, k.target)
	}
	return t
}

// pressed reports whether the share is asked for more than it has, or may be.
func (s *Share) pressed() bool {
	has := s.Assigned()
	return !s.known || s.demand > 1.5*has || s.denied > 0.02 && s.demand > 0.8*has
}
