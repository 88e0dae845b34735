package adminapi

import (
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
)

// unfair is the stream that ends so that a caller can have one more: the last one of the operator who has the most, if these are
// at least two more than the caller has; or else, among the caller's own, the last one of the network that has the most, by the
// same measure. It is nil if there is none: then none has more than a fair share. A caller whose stream was ended is refused
// when it comes again, so that streams do not end each other in turn. b.mu is held.
func (b *hub) unfair(of adminguard.Caller) *stream {
	const more = 2
	if last, n := b.lastOfMost(whose); n >= b.count(whose, of)+more {
		last, _ = b.lastOfMost(networksOf(last.of.Who))
		return last
	}
	own := networksOf(of.Who)
	if last, n := b.lastOfMost(own); n >= b.count(own, of)+more {
		return last
	}
	return nil
}

// grouping tells to which group a caller belongs, unless it is one that does not count.
type grouping func(of adminguard.Caller) (group string, counts bool)

func whose(of adminguard.Caller) (string, bool) { return of.Who, true }

// networksOf groups the callers with the name who by their networks.
func networksOf(who string) grouping {
	return func(of adminguard.Caller) (string, bool) { return of.Network(), of.Who == who }
}

// count is how many streams there are of the group of a caller. b.mu is held.
func (b *hub) count(by grouping, of adminguard.Caller) (n int) {
	own, _ := by(of)
	for s := range b.all {
		if group, counts := by(s.of); counts && group == own {
			n++
		}
	}
	return n
}

// lastOfMost is the stream that has begun last of the group that has the most, and how many that has. b.mu is held.
func (b *hub) lastOfMost(by grouping) (last *stream, n int) {
	counted := make(map[string]int)
	for s := range b.all {
		if group, counts := by(s.of); counts {
			counted[group]++
			n = max(n, counted[group])
		}
	}
	for s := range b.all {
		if group, counts := by(s.of); counts && counted[group] == n && (last == nil || s.number > last.number) {
			last = s
		}
	}
	return last, n
}
