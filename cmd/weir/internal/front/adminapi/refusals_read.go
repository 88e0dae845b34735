package adminapi

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/internal/keytext"
)

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

// told is the refusal as it is told.
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
			RetryAfter: operator.SecondsOf(l.retry), ResetAfter: operator.SecondsOf(l.reset),
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
		return fmt.Sprintf("%d permits, another limit than that of the policy", l.max)
	}
	return l.limit.String()
}
