package adminapi

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
)

const (
	// MostRefusals is how many refusals are kept.
	MostRefusals = 4096
	// mostPerSecond is how many are noted in a second.
	mostPerSecond = 10_000
	// mostLimits is how many limits of a refusal are kept, that which binds among them, and mostText how many bytes of text.
	mostLimits      = 8
	mostRefusalText = 1536
	// mostField is how much of this text a field of the request has at most, so that a long path leaves room for the key.
	mostField = 256
	// chunk is for how many refusals there is room made at a time.
	chunk = 64
)

// span is a part of the text of an entry.
type span struct{ from, to uint16 }

// limitEntry is a limit of a refusal.
type limitEntry struct {
	policy, name, rule, source, key span
	limit                           weir.Limit
	cost, max, remaining            int64
	retry, reset                    time.Duration
	reason                          weir.Reason
	allowed, unasked                bool
}

// entry is a refusal. Its memory is used again.
type refusalEntry struct {
	number  uint64 // from 1; 0 if there is none
	version uint64 // of the configuration
	at      time.Time
	client  netip.Addr

	protocol, method, host, path span
	deniedBy, deniedAt           span // the rule that denies it, and where that stands

	text   [mostRefusalText]byte
	used   uint16
	limits [mostLimits]limitEntry
	n      int // of limits
	bind   int
	reason weir.Reason
	retry  time.Duration
}

// slot is the place of every Most-th refusal.
type slot struct {
	mu    sync.Mutex
	entry *refusalEntry
}

// Refusals keeps refusals. It is safe for concurrent use.
type Refusals struct {
	seed   uint64 // of the IDs
	limit  *weir.Limiter
	number atomic.Uint64 // of the last refusal that was noted
	missed atomic.Uint64
	// version is that of the configuration.
	version atomic.Uint64
	slots   [MostRefusals]slot

	growing sync.Mutex
	free    []refusalEntry
}

// NewRefusals returns a log. clock may be nil.
func NewRefusals(clock weir.Clock) (*Refusals, error) {
	limit, err := weir.New(weir.TokenBucket(weir.PerSecond(mostPerSecond), 0), weir.Options{Clock: clock})
	if err != nil {
		return nil, fmt.Errorf("weir: refusals: %w", err)
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // it never fails
	return &Refusals{seed: binary.LittleEndian.Uint64(seed[:]), limit: limit}, nil
}

// SetVersion says which version of the configuration is in force.
func (l *Refusals) SetVersion(version uint64) { l.version.Store(version) }

// Refused notes a refusal, and returns its ID, 0 if there are too many. It is for [policy.EngineOptions.OnRefused].
func (l *Refusals) Refused(requests []*policy.Request, v *policy.Verdict) uint64 {
	if !l.limit.Allow() {
		l.missed.Add(1)
		return 0
	}
	number := l.number.Add(1)
	s := &l.slots[number%MostRefusals]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entry == nil {
		s.entry = l.room()
	}
	if s.entry.number > number { // it has waited for so long that its place is taken
		return 0
	}
	s.entry.fill(number, requests, v)
	s.entry.version = l.version.Load()
	return l.id(number)
}

// room returns an entry that was never used.
func (l *Refusals) room() *refusalEntry {
	l.growing.Lock()
	defer l.growing.Unlock()
	if len(l.free) == 0 {
		l.free = make([]refusalEntry, chunk)
	}
	e := &l.free[0]
	l.free = l.free[1:]
	return e
}

// fill makes e a refusal.
func (e *refusalEntry) fill(number uint64, requests []*policy.Request, v *policy.Verdict) {
	e.number, e.at, e.used, e.n, e.bind = number, time.Now(), 0, 0, -1
	e.protocol, e.method, e.host, e.path, e.client = span{}, span{}, span{}, span{}, netip.Addr{}
	e.deniedBy, e.deniedAt = span{}, span{}
	d := v.Decision()
	e.reason, e.retry = d.Reason, d.RetryAfter
	binding := v.Binding
	if binding < 0 || binding >= len(v.Parts) {
		binding = -1
	}
	about := 0
	if binding >= 0 {
		about = v.Parts[binding].Request
	}
	if d.Reason == weir.ReasonDenied {
		for i := range requests {
			if rule := v.DeniedBy(i); rule != nil {
				about, e.deniedBy, e.deniedAt = i, e.put(rule.Name), e.put(rule.Source)
				break
			}
		}
	}
	// What binds is noted first, so that there is room for it.
	if binding >= 0 {
		e.bind = 0
		e.add(&v.Parts[binding])
	}
	for i := range v.Parts {
		if i != binding && e.n < mostLimits {
			e.add(&v.Parts[i])
		}
	}
	if about < len(requests) && requests[about] != nil {
		e.describe(requests[about])
	}
}

// describe notes what is known of a request.
func (e *refusalEntry) describe(r *policy.Request) {
	if r.Named != nil {
		e.protocol, e.host = e.put(cmp.Or(r.Protocol, "check")), e.put(r.Host) // nothing else is known
		return
	}
	e.protocol = e.put(r.Protocol)
	e.method, e.host, e.path, e.client = e.put(r.Method), e.put(r.Host), e.put(r.Path), r.Client
}

// add notes a limit.
func (e *refusalEntry) add(p *policy.Part) {
	l := &e.limits[e.n]
	e.n++
	d := &p.Decision
	*l = limitEntry{
		cost: p.Cost, max: d.Limit, remaining: d.Remaining, retry: d.RetryAfter, reset: d.ResetAfter,
		reason: d.Reason, allowed: d.Allowed, unasked: p.Unasked && d.Allowed,
	}
	l.policy, l.key = e.put(p.Policy.Name), e.putKey(p.Key)
	if p.Limit >= 0 && p.Limit < len(p.Policy.Limits) {
		l.name = e.put(p.Policy.Limits[p.Limit].Name)
	}
	source := p.Policy.Source
	if p.Rule != nil {
		l.rule, source = e.put(p.Rule.Name), p.Rule.Source
	}
	l.source = e.put(source)
	l.limit = p.Applied()
}

// put keeps text, as far as there is room.
func (e *refusalEntry) put(text string) span {
	n := copy(e.text[e.used:], text[:min(len(text), mostField)])
	at := span{e.used, e.used + uint16(n)}
	e.used = at.to
	return at
}

// putKey is put for bytes, which may be longer.
func (e *refusalEntry) putKey(text []byte) span {
	n := copy(e.text[e.used:], text)
	at := span{e.used, e.used + uint16(n)}
	e.used = at.to
	return at
}

// id is the ID of a refusal. It is different for each, and does not show how many there are.
func (l *Refusals) id(number uint64) uint64 {
	x := number + l.seed
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// RefusalQuery is which refusals are asked for.
type RefusalQuery struct {
	// Policy, and one of Keys, are those of a limit that has refused. Default: nil, whatever they are.
	Policy *string
	Keys   []string
	// Word is what the refusal must name: as its client, in a key, or in its path or host. Default: nil, any.
	Word *keytext.Word
	// Most is how many are answered at most.
	Most int
}

// Last are the last refusals of a query, the last first.
func (l *Refusals) Last(q RefusalQuery) operator.Refusals {
	all := operator.Refusals{Refusals: []operator.Refusal{}, Missed: l.missed.Load()}
	last := l.number.Load()
	all.Kept = last
	first := uint64(1)
	if last > MostRefusals {
		first = last - MostRefusals + 1
	}
	for n := last; n >= first; n-- {
		l.look(n, func(e *refusalEntry) {
			all.Oldest = e.at.UTC()
			if len(all.Refusals) < q.Most && e.matches(q) {
				all.Refusals = append(all.Refusals, e.told(l.id(n)))
			}
		})
	}
	return all
}

// Find is the refusal with an ID, if it is still kept.
func (l *Refusals) Find(id uint64) (r operator.Refusal, ok bool) {
	last := l.number.Load()
	for n := last; n > 0 && n+MostRefusals > last && !ok; n-- {
		if l.id(n) == id {
			l.look(n, func(e *refusalEntry) { r, ok = e.told(id), true })
			break
		}
	}
	return r, ok
}

// Since returns the refusals after the one with this number, the first first, at most so many of the last ones, and the number to
// go on with: that of the last refusal before the first one that is still being noted.
func (l *Refusals) Since(number uint64, most int) (all []operator.Refusal, last uint64) {
	last = l.number.Load()
	if last > uint64(most) {
		number = max(number, last-uint64(most))
	}
	for number++; number <= last; number++ {
		if noted := l.look(number, func(e *refusalEntry) { all = append(all, e.told(l.id(number))) }); !noted {
			return all, number - 1
		}
	}
	return all, last
}

// Counts are how many refusals were noted, and how many were not as there were too many.
func (l *Refusals) Counts() (kept, missed uint64) { return l.number.Load(), l.missed.Load() }

// look calls do with the refusal of this number, if it is still there, and reports whether it has been noted.
func (l *Refusals) look(number uint64, do func(e *refusalEntry)) (noted bool) {
	s := &l.slots[number%MostRefusals]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entry != nil && s.entry.number == number {
		do(s.entry)
	}
	return s.entry != nil && s.entry.number >= number
}

func (e *refusalEntry) of(s span) string { return string(e.text[s.from:s.to]) }

// matches reports whether a limit that has refused, or that binds, is that of a query.
func (e *refusalEntry) matches(q RefusalQuery) bool {
	if q.Word != nil && !e.names(q.Word) {
		return false
	}
	if q.Policy == nil && q.Keys == nil {
		return true
	}
	for i := range e.n {
		l := &e.limits[i]
		if l.allowed && i != e.bind {
			continue
		}
		if (q.Policy == nil || e.of(l.policy) == *q.Policy) && (q.Keys == nil || slices.Contains(q.Keys, e.of(l.key))) {
			return true
		}
	}
	return false
}

// names reports whether a refusal names a word.
func (e *refusalEntry) names(word *keytext.Word) bool {
	if word.Is(e.client) || word.In(e.of(e.path)) || word.In(e.of(e.host)) {
		return true
	}
	for i := range e.n {
		if word.In(e.of(e.limits[i].key)) {
			return true
		}
	}
	return false
}

// told is the refusal as it is sent.
func (e *refusalEntry) told(id uint64) operator.Refusal {
	r := operator.Refusal{
		ID: answer.FormatRefusal(id), Time: e.at.UTC(), Protocol: e.of(e.protocol), Method: e.of(e.method),
		Host: e.of(e.host), Path: e.of(e.path),
		Limits: make([]operator.RefusedLimit, e.n), Binding: e.bind, Reason: e.reason.String(),
		RetryAfter: operator.SecondsOf(e.retry),
		Version:    e.version, DeniedBy: e.of(e.deniedBy), Source: e.of(e.deniedAt),
	}
	if e.client.IsValid() {
		r.Client = e.client.String()
	}
	for i := range e.n {
		l := &e.limits[i]
		r.Limits[i] = operator.RefusedLimit{
			Policy: e.of(l.policy), Limit: e.of(l.name), Holds: l.holds(), Rule: e.of(l.rule), Source: e.of(l.source),
			Key: e.of(l.key), Cost: l.cost, Allowed: l.allowed, Reason: l.reason.String(), Max: l.max, Remaining: l.remaining,
			RetryAfter: operator.SecondsOf(l.retry), ResetAfter: operator.SecondsOf(l.reset), Unasked: l.unasked,
		}
	}
	return r
}

// holds is what held for the key, in words. Of an override only the number of permits is known.
func (l *limitEntry) holds() string {
	permits := l.limit.Permits()
	if permits == 0 {
		permits = l.limit.Rate().Permits
	}
	if l.max != permits && l.max > 0 {
		return terminal.Plural(l.max, "permit", "permits") + ", another limit than that of the policy"
	}
	return l.limit.String()
}
