package keyset

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
)

// Batch is calls that do not depend on each other and come together, such as those of a pipeline. Each is decided alone, in the
// order in which they were added, as [Plan.TakeBytes] does: some may be allowed and others refused. They cost a part of what they
// cost one by one: the memory of all keys is loaded at once, and the clock is read once if all are allowed. A refusal for less
// than 10 ms reads it again, and so does the end of a batch with refusals: a call whose permits have come back while the batch
// was held up is decided again then, after the calls behind it. The zero value is a Batch without calls. It is not safe for
// concurrent use.
type Batch struct {
	in    batch
	n     int
	calls [MostCharges]inside.Call[weir.Decision]
}

// batch is what package weir has for a Batch.
type batch interface {
	Take(calls []inside.Call[weir.Decision])
}

// Add adds a call that takes n permits of key under a plan. The decision is written to d, of which each call needs its own, by
// Take at the latest. Key must not change before. A call that cannot be used, and one beyond MostCharges, is refused alone with
// ReasonInvalid.
func (b *Batch) Add(p *Plan, key []byte, n int64, d *weir.Decision) {
	switch {
	case p == nil || p.in == nil:
		*d = weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
		return
	case b.n >= len(b.calls):
		*d = p.in.Take("", -1)
		return
	}
	c := &b.calls[b.n] // written field by field: as a whole it would be written twice
	c.Plan, c.Key, c.N, c.Decision = p.in, borrowed(key), n, d
	b.n++
}

// Take decides the calls, and forgets them.
func (b *Batch) Take() {
	if b.in == nil {
		b.in = inside.Batch().(batch) //nolint:errcheck,forcetypeassert // package weir has said what it is
	}
	b.in.Take(b.calls[:b.n])
	b.n = 0
}
