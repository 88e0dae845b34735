package storetest

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// loan debits, lends or returns.
func (h *history) loan(handle store.Home) error {
	switch h.rng.IntN(3) {
	case 0:
		return h.debit(handle)
	case 1:
		return h.lendSome(handle)
	default:
		if len(h.lent) == 0 {
			return nil
		}
		return h.takeBack(handle)
	}
}

func (h *history) debit(handle store.Home) error {
	n := min(h.c.N, h.room())
	h.didf("debit %d", n)
	ds := make([]weir.Decision, 1)
	h.c.N = n
	if err := store.Debit(h.ctx(), handle, []store.Charge{h.c}, ds); err != nil {
		return err
	}
	h.model.charge(h.now(), n, h.most)
	h.c.N = 0 // as it answers a probe
	return h.compare(ds[0], h.model.peek(h.now(), 0))
}

func (h *history) lendSome(handle store.Home) error {
	h.c.N = max(h.c.N, 1)
	least := 1 + h.rng.Int64N(h.c.N)
	h.didf("lend %d, at least %d", h.c.N, least)
	l, d, err := store.Lend(h.ctx(), handle, h.c, least)
	if err != nil {
		return err
	}
	want := h.model.peek(h.now(), least)
	asked := h.c.N
	h.c.N = least
	if !want.Allowed || h.inexact() && h.short(d) {
		if l.Lent() != 0 {
			return fmt.Errorf("lent %+v, want none", l)
		}
		return h.compare(d, want)
	}
	lent := min(asked, want.Remaining)
	if h.inexact() && l.Lent() == lent-1 && lent == want.Remaining { // the last one lacks a moment
		lent--
	}
	if l.Lent() != lent || h.Advance != nil && l.Taken/int64(h.unit()) != h.now() {
		return fmt.Errorf("lent %+v at %d, want %d", l, h.now(), lent)
	}
	h.lent = append(h.lent, l)
	return h.compare(d, h.model.take(h.now(), lent))
}

func (h *history) takeBack(handle store.Home) error {
	i := h.rng.IntN(len(h.lent))
	l := h.lent[i]
	h.lent = slices.Delete(h.lent, i, i+1)
	unspent := h.rng.Int64N(l.Lent() + 1)
	h.didf("return %d of %d lent at %d", unspent, l.Lent(), l.Taken)
	lent := l.Taken / int64(h.unit())
	if h.Advance == nil {
		lent = h.now()
	}
	h.model.takeBack(h.now(), unspent, lent)
	return store.Return(h.ctx(), handle, l, unspent)
}
