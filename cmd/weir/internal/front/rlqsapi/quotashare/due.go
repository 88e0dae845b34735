package quotashare

import (
	"math"
	"slices"
	"time"
)

// Tick does what is due: divides what has become free, and abandons buckets that no proxy asks for.
func (l *Ledger) Tick(nanos int64) {
	now := milliseconds(nanos)
	for len(l.due) > 0 && l.due[0].due <= now {
		a := l.due[0]
		l.expireAll(a, now)
		if a.dirty {
			l.divide(a, now)
		}
		if len(a.links) == 0 { // nothing is divided, and no report says any more what others use
			a.others = 0
		}
		if a.fresh() {
			l.due.Pop()
			delete(l.accounts, a.key)
			continue
		}
		l.plans(a, now)
	}
	if now-l.swept >= 1000 {
		l.swept = now
		l.sweep(now)
	}
}

// Next is when Tick is to be called, if nothing else comes before.
func (l *Ledger) Next(nanos int64) int64 {
	next := l.swept + 1000
	if len(l.shares) == 0 {
		next = math.MaxInt64 / int64(time.Millisecond)
	}
	if len(l.due) > 0 {
		next = min(next, l.due[0].due)
	}
	return max(next, milliseconds(nanos)) * int64(time.Millisecond)
}

// sweep abandons shares that are not reported of, or not used.
func (l *Ledger) sweep(now int64) {
	idle := l.options.Idle.Milliseconds()
	for _, s := range slices.Backward(l.shares) { // as those that have been seen may be moved
		silent := max(4*s.interval, 2*l.options.LongestTTL.Milliseconds())
		if !s.closed && (now-s.busy >= idle || now-s.reported >= silent) {
			l.abandon(s, now)
		}
	}
}

func (l *Ledger) abandon(s *Share, now int64) {
	l.options.Send(s, Assignment{Kind: Abandon})
	l.close(s, now)
}

// Abandon has a proxy forget a bucket, and ends the share.
func (l *Ledger) Abandon(s *Share, nanos int64) {
	if !s.closed {
		l.abandon(s, milliseconds(nanos))
	}
}

// schedule says when the accounts of a share are looked at again because of this share.
func (l *Ledger) schedule(s *Share, now int64) {
	for _, k := range s.links {
		for i := range s.grants {
			l.soon(k.account, s.grants[i].until)
		}
		if k.account.dirty {
			l.soon(k.account, k.account.next(now))
		}
	}
}

// next is when an account may be divided again.
func (a *account) next(now int64) int64 { return max(a.divided+100, a.looked+a.pause(), now+1) }

// soon has an account looked at by a time, even if what is due then is renewed before.
func (l *Ledger) soon(a *account, at int64) {
	if at < a.due {
		a.due = at
		l.due.Fix(a.position)
	}
}

// plans says when an account all of whose links have been looked at is looked at again.
func (l *Ledger) plans(a *account, now int64) {
	due := math.MaxInt64 / int64(time.Millisecond)
	for _, k := range a.links {
		for i := range k.share.grants {
			due = min(due, k.share.grants[i].until)
		}
	}
	if len(a.links) == 0 { // forgotten once it is full
		due = now + 1 + max(0, a.burst*a.unit-a.tokens)/max(a.rate, 1)
	}
	due = max(due, now+1, a.looked+a.pause())
	if a.dirty {
		due = min(due, a.next(now))
	}
	a.due = due
	l.due.Fix(a.position)
}
