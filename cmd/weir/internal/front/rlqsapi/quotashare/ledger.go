package quotashare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/heap"
)

// DefaultGrace is that of options without one.
const DefaultGrace = time.Second

// Options configure a [Ledger].
type Options struct {
	// Send sends what a proxy is assigned, in the order in which it must arrive. It must not call the ledger. Required.
	Send func(s *Share, a Assignment)
	// Grace is within which a message arrives, from 1 ms to 1 min: see the package. Default: 1 s.
	Grace time.Duration
	// FirstTTL is the TTL of the first assignments of a share, until it is known how often it is reported: whole seconds from 1
	// to LongestTTL. Default: 30 s, or LongestTTL if that is shorter.
	FirstTTL time.Duration
	// LongestTTL is the longest TTL: whole seconds from 1 to 3600. Default: 2 min.
	LongestTTL time.Duration
	// Idle is after which time without a request a bucket is abandoned: from 1 s to 24 h. Default: 10 min.
	Idle time.Duration
	// MostShares is how many shares there are at most, those included that have ended and whose assignments have not expired:
	// from 1 to 10^7. Limits are remembered until they are full again, at most four for each of them. Default: 100,000.
	MostShares int
	// Proxy is the proxy of an owner. One has nine in ten of MostShares at most, so that what clients of one make up leaves some
	// to others. Default: nil, each may have all.
	Proxy func(owner any) netip.Prefix
}

var (
	// ErrTooMany says that there are as many shares as there may be.
	ErrTooMany = errors.New("weir: too many quotas are assigned")
	// ErrProxy says that one proxy has as many of them as it may have. It is ErrTooMany as well.
	ErrProxy = fmt.Errorf("%w to this proxy", ErrTooMany)
)

// Need is a limit that a share is held to.
type Need struct {
	// Key identifies the account. Shares with the same key divide one.
	Key string
	// Limit is what it is held to: a token bucket. If the account has another one, that is changed for all.
	Limit weir.Limit
}

// Ledger divides limits among shares. It is not safe for concurrent use. Times are in nanoseconds on any one scale, and must not
// go backward.
type Ledger struct {
	options  Options
	grace    int64 // ms
	accounts map[string]*account
	due      heap.Heap[*account]
	shares   []*Share
	proxies  map[netip.Prefix]int // shares of each
	swept    int64
	links    []*link // of a plan
}

// New returns a ledger without shares.
func New(o Options) *Ledger {
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.LongestTTL = cmp.Or(o.LongestTTL, 2*time.Minute)
	o.FirstTTL = cmp.Or(o.FirstTTL, min(30*time.Second, o.LongestTTL))
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	o.MostShares = cmp.Or(o.MostShares, 100_000)
	grace := o.Grace.Milliseconds()
	if o.Grace%time.Millisecond != 0 {
		grace++
	}
	return &Ledger{
		options: o, grace: grace, accounts: map[string]*account{}, proxies: map[netip.Prefix]int{}, swept: math.MinInt64 / 2,
	}
}

// Subscribe begins a share that is held to all of these limits, and assigns something to it at once. Without needs it is
// assigned to allow everything or, if deny, nothing.
func (l *Ledger) Subscribe(owner any, needs []Need, deny bool, nanos int64) (*Share, error) {
	now := milliseconds(nanos)
	if len(l.shares) >= l.options.MostShares || len(l.accounts) >= 4*l.options.MostShares {
		return nil, ErrTooMany
	}
	var proxy netip.Prefix
	if l.options.Proxy != nil {
		const tenth = 10
		if proxy = l.options.Proxy(owner); l.proxies[proxy] >= l.options.MostShares-l.options.MostShares/tenth {
			return nil, ErrProxy
		}
	}
	l.proxies[proxy]++
	s := &Share{
		Owner: owner, ledger: l, proxy: proxy, blanket: Allow, reported: now, counted: now, busy: now, since: now,
		position: len(l.shares),
	}
	if deny {
		s.blanket, needs = Deny, nil
	}
	l.shares = append(l.shares, s)
	for i := range needs {
		l.join(s, &needs[i], now)
	}
	l.divideAll(s, now, 0)
	if s.current() == nil {
		s.tell(s.bucket(0, 0), now)
	}
	l.schedule(s, now)
	return s, nil
}

// join has a share take part in an account.
func (l *Ledger) join(s *Share, n *Need, now int64) {
	a := l.accounts[n.Key]
	if a == nil {
		a = &account{
			key: n.Key, limit: n.Limit, grid: newGrid(n.Limit), settled: now,
			divided: math.MinInt64 / 2, looked: math.MinInt64 / 2,
		}
		a.tokens = a.burst * a.unit
		l.accounts[n.Key] = a
		a.due = math.MaxInt64
		l.due.Push(a)
	}
	a.settle(now)
	a.change(n.Limit, now)
	for _, k := range s.links {
		if k.account == a {
			return
		}
	}
	k := &link{share: s, account: a, target: math.Inf(1), position: len(a.links)}
	s.links = append(s.links, k)
	a.links = append(a.links, k)
	a.dirty = true
}

// SetNeeds says that a share is held to other limits from now on, and returns the share to go on with, which has the same owner.
func (l *Ledger) SetNeeds(s *Share, needs []Need, deny bool, nanos int64) (*Share, error) {
	now := milliseconds(nanos)
	same := len(needs) == len(s.links) && !deny
	for i := range needs {
		same = same && s.links[i].account.key == needs[i].Key
	}
	if len(needs) == 0 && len(s.links) == 0 && deny == (s.blanket == Deny) {
		return s, nil
	}
	if !same {
		// What the proxy has counts in the old accounts until it has expired.
		t, err := l.Subscribe(s.Owner, needs, deny, nanos)
		if err != nil {
			return s, err
		}
		t.demand, t.known, t.interval = s.demand, s.known, s.interval
		l.close(s, now)
		return t, nil
	}
	for i := range needs {
		s.links[i].account.change(needs[i].Limit, now)
	}
	l.divideAll(s, now, 0)
	l.schedule(s, now)
	return s, nil
}

// Report says what was demanded of a share since it was last reported, or subscribed: elapsed is how long that is according to
// the proxy. What the share has is renewed, if it stays so.
func (l *Ledger) Report(s *Share, allowed, denied uint64, elapsed time.Duration, nanos int64) {
	if s.closed {
		return
	}
	now := milliseconds(nanos)
	s.prove(now)
	s.expire(now)
	s.observe(allowed, denied, elapsed, now)
	sent := s.sent
	s.sent = math.MinInt64
	l.divideAll(s, now, s.ledger.gap(s))
	if s.sent == math.MinInt64 {
		s.sent = sent
		l.renew(s, now)
	}
	l.schedule(s, now)
}

// most requests that one report tells of, and the longest time that it is about.
const (
	mostRequests = 1 << 50
	longestTime  = time.Hour
)

// observe reckons the demand.
func (s *Share) observe(allowed, denied uint64, elapsed time.Duration, now int64) {
	if gap := now - s.reported; gap > 0 {
		switch gap = min(gap, s.ledger.options.LongestTTL.Milliseconds()); {
		case gap >= s.interval:
			s.interval = gap
		default:
			s.interval = (3*s.interval + gap) / 4
		}
	}
	s.reported = now
	n := float64(min(allowed, mostRequests)) + float64(min(denied, mostRequests))
	if n > 0 {
		s.busy = now
	}
	s.uncut += n
	s.refused += float64(min(denied, mostRequests))
	passed := max(now-s.counted, min(elapsed, longestTime).Milliseconds())
	if passed < 100 {
		return
	}
	seconds := float64(passed) / 1000
	d := s.uncut / seconds
	if chance := 3 * math.Sqrt(max(s.demand*seconds, s.uncut, 1)) / seconds; !s.known || math.Abs(d-s.demand) > chance {
		s.demand = d
	} else { // which may be by chance
		s.demand += (d - s.demand) / 4
	}
	if s.uncut > 0 {
		s.denied += (s.refused/s.uncut - s.denied) / 2
	}
	s.known, s.uncut, s.refused, s.counted = true, 0, 0, now
	for _, k := range s.links {
		k.account.dirty = true
	}
}

// gap is for how long an account is not divided again for reports of this share.
func (l *Ledger) gap(s *Share) int64 { return min(max(s.interval/16, 20), 1000) }

// divideAll divides the accounts of a share for which something has been reported.
func (l *Ledger) divideAll(s *Share, now, gap int64) {
	for _, k := range s.links {
		a := k.account
		if a.dirty && now-a.divided >= gap && now-a.looked >= a.pause() {
			l.expireAll(a, now)
			l.divide(a, now)
		}
	}
}

func (l *Ledger) expireAll(a *account, now int64) {
	a.settle(now)
	a.looked = now
	for _, k := range slices.Backward(a.links) { // as those that have been seen may be moved
		s := k.share
		s.expire(now)
		if s.closed && len(s.grants) == 0 {
			l.forget(s)
		}
	}
}

// renew sends what a share has once more.
func (l *Ledger) renew(s *Share, now int64) {
	g := s.current()
	switch {
	case len(s.links) == 0:
		s.tell(Assignment{Kind: s.blanket}, now)
	case g == nil || g.Kind != Tokens:
		s.tell(Assignment{Kind: Deny}, now)
	case now-s.sent < g.TTL.Milliseconds()/4 && g.TTL == s.ttl() && s.renewable(now):
		// It has been sent a moment ago.
	case s.renewable(now):
		s.tell(g.Assignment, now)
	default: // it may have expired: then the proxy begins with a full bucket
		s.settle(now)
		a := s.bucket(g.perSecond(), min(int64(g.MaxTokens), s.affords()))
		if a.Kind == Tokens && !s.fits(a) || len(s.grants) > mostPending {
			a = Assignment{Kind: Deny}
		}
		s.tell(a, now)
	}
}

// End ends a share whose stream has ended. What the proxy has counts until it has expired.
func (l *Ledger) End(s *Share, nanos int64) { l.close(s, milliseconds(nanos)) }

func (l *Ledger) close(s *Share, now int64) {
	if s.closed {
		return
	}
	s.closed = true
	s.expire(now)
	for _, k := range s.links {
		k.account.dirty = true
	}
	l.schedule(s, now)
	if len(s.grants) == 0 || len(s.links) == 0 {
		l.forget(s)
	}
}

// forget removes a share that has nothing.
func (l *Ledger) forget(s *Share) {
	for _, k := range s.links {
		k.account.remove(k)
	}
	if i := s.position; i < len(l.shares) && l.shares[i] == s {
		last := len(l.shares) - 1
		l.shares[i] = l.shares[last]
		l.shares[i].position = i
		l.shares[last] = nil
		l.shares = l.shares[:last]
		if l.proxies[s.proxy]--; l.proxies[s.proxy] == 0 {
			delete(l.proxies, s.proxy)
		}
	}
}

// Use says that others use so many tokens a second of an account, without having been assigned them.
func (l *Ledger) Use(key string, perSecond float64, nanos int64) {
	a := l.accounts[key]
	if a == nil {
		return
	}
	now := milliseconds(nanos)
	a.settle(now)
	others := min(int64(max(perSecond, 0)*float64(a.seconds)), a.rate)
	if others == a.others {
		return
	}
	a.others, a.dirty = others, true
	l.soon(a, a.next(now))
}

// Shares is how many shares there are, those that have ended and count still included.
func (l *Ledger) Shares() int { return len(l.shares) }

// milliseconds are rounded down: what is sent seems to have been sent a little earlier, which the ends account for.
func milliseconds(nanos int64) int64 {
	ms := nanos / int64(time.Millisecond)
	if nanos%int64(time.Millisecond) < 0 {
		ms--
	}
	return ms
}

// Figures are what an account is about, for people.
type Figures struct {
	Key      string  `json:"key"`
	Limit    float64 `json:"limit_per_second"`
	Burst    int64   `json:"burst"`
	Assigned float64 `json:"assigned_per_second"`
	Others   float64 `json:"used_by_others_per_second"`
	Held     int64   `json:"tokens_out"`
	Tokens   float64 `json:"tokens_left"`
	Shares   int     `json:"shares"`
}

// Accounts are the figures of up to most accounts, those of the most shares first, and how many accounts there are.
func (l *Ledger) Accounts(most int, nanos int64) ([]Figures, int) {
	now := milliseconds(nanos)
	all := make([]Figures, 0, len(l.accounts))
	for _, a := range l.accounts {
		a.settle(now)
		all = append(all, Figures{
			Key: a.key, Limit: a.perSecond(a.rate), Burst: a.burst, Assigned: a.perSecond(a.assigned), Held: a.held,
			Others: a.perSecond(a.others), Tokens: float64(a.tokens) / float64(a.unit), Shares: len(a.links),
		})
	}
	slices.SortFunc(all, func(x, y Figures) int {
		if x.Shares != y.Shares {
			return y.Shares - x.Shares
		}
		if x.Key < y.Key {
			return -1
		}
		return 1
	})
	return all[:min(most, len(all))], len(all)
}
