package quotashare

import (
	"math"

	"github.com/weirhq/weir"
)

// account is one limit: how much of it is free, and which proxies have the rest.
type account struct {
	grid

	key   string
	limit weir.Limit

	tokens   int64 // that are free, in units; less than 0, by a token for each share at most, only after the limit was lowered
	settled  int64 // when tokens was right
	assigned int64 // rates that may be in use
	held     int64 // tokens that may be in the buckets of proxies
	others   int64 // rate that is used without having been assigned
	links    []*link

	dirty    bool  // something has been reported that calls for a new division
	divided  int64 // when it was made last
	looked   int64 // when all links were looked at last
	due      int64 // when something is to be done, for the heap
	position int   // in the heap
}

// Before implements [heap.Item]: the one for which something is to be done first comes first.
func (a *account) Before(other *account) bool { return a.due < other.due }

// Placed implements [heap.Item].
func (a *account) Placed(at int) { a.position = at }

// link is what a share has of an account.
type link struct {
	share   *Share
	account *account
	rate    int64
	held    int64
	target  float64 // in tokens a second
	work    float64 // of a division

	position int // in the links of the account
}

// pause is for how long, in ms, the links are not looked at again, which takes some 0.2 us for each: clients can make up any
// number of buckets of one limit. Meanwhile what has expired still counts, and what is new has nothing.
func (a *account) pause() int64 { return int64(len(a.links)) / 100 }

// settle brings tokens up to date.
func (a *account) settle(now int64) {
	passed := now - a.settled
	if passed <= 0 {
		return
	}
	a.settled = now
	rate, most := a.rate-a.assigned-a.others, max(a.burst-a.held, 0)*a.unit
	switch {
	case a.tokens >= most:
		a.tokens = most
	case rate > 0 && passed > (most-a.tokens)/rate:
		a.tokens = most
	case rate >= 0:
		a.tokens += passed * rate
	case a.tokens > 0: // after the limit was lowered more can be in use than it allows, which is not charged to what comes
		if passed > a.tokens/-rate {
			a.tokens = 0
		} else {
			a.tokens += passed * rate
		}
	}
}

// affords is how many tokens are free.
func (a *account) affords() int64 { return max(a.tokens, 0) / a.unit }

// fresh reports whether an account is as if it had never been used.
func (a *account) fresh() bool {
	return len(a.links) == 0 && a.assigned == 0 && a.held == 0 && a.others == 0 && a.tokens >= a.burst*a.unit
}

// change puts another limit in force. What has been given out stays so.
func (a *account) change(l weir.Limit, now int64) {
	if l == a.limit {
		return
	}
	a.settle(now)
	before := a.grid
	a.limit, a.grid = l, newGrid(l)
	whole, rest := a.tokens/before.unit, a.tokens%before.unit
	a.tokens = max(min(whole, a.burst), -a.burst)*a.unit + int64(float64(rest)/float64(before.unit)*float64(a.unit))
	a.others = int64(before.perSecond(a.others) * float64(a.seconds))
	a.assigned, a.held = 0, 0
	for _, k := range a.links {
		k.rate, k.held = 0, 0
		k.recount()
	}
	a.tokens = min(a.tokens, max(a.burst-a.held, 0)*a.unit)
	a.dirty, a.divided = true, math.MinInt64/2
}

// recount counts anew what a share may have in use. The account must be settled.
func (k *link) recount() {
	var rate, held int64
	for i := range k.share.grants {
		g := &k.share.grants[i]
		if g.Kind != Tokens {
			continue
		}
		rate = max(rate, k.account.counts(g.TokensPerFill, g.FillSeconds))
		held += int64(g.MaxTokens)
	}
	k.account.assigned += rate - k.rate
	k.account.held += held - k.held
	k.rate, k.held = rate, held
}

func (a *account) remove(k *link) {
	if i := k.position; i < len(a.links) && a.links[i] == k {
		last := len(a.links) - 1
		a.links[i] = a.links[last]
		a.links[i].position = i
		a.links[last] = nil
		a.links = a.links[:last]
	}
}
