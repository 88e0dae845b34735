//go:build linux

package soak

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/internal/bounds"
)

// TestGivenBackUnderWay: a slot that another client has before it is noted that it was given back is no breach, and one that was
// never given back is.
func TestGivenBackUnderWay(t *testing.T) {
	t.Parallel()
	for _, givesBack := range []bool{true, false} {
		h := newHistory(newClocks())
		all := policies()
		p := all[slices.IndexFunc(all, func(p *policy) bool { return p.name == "local-slots" })]
		l := &p.limits[0]
		note := func(kind bounds.Kind, sent int64) {
			h.add(p, l, "hot", "n1", bounds.Event{Sent: sent, Received: h.clocks.now(), N: 1, Kind: kind})
		}
		note(bounds.Granted, h.clocks.now())
		note(bounds.Granted, h.clocks.now())
		done := h.begin()
		sent := h.clocks.now()
		note(bounds.Granted, h.clocks.now())
		if h.check(false); len(h.broke()) != 0 {
			t.Fatalf("while it is under way: %+v", h.broke())
		}
		if givesBack {
			note(bounds.Returned, sent)
		}
		done()
		if h.check(false); (len(h.broke()) == 0) != givesBack {
			t.Errorf("given back: %t: %+v", givesBack, h.broke())
		}
	}
}

// TestChecksAtOnce: histories that several checks close at once are counted once.
func TestChecksAtOnce(t *testing.T) {
	t.Parallel()
	h := newHistory(newClocks())
	h.clocks.began = h.clocks.began.Add(-2 * idle)
	p := policies()[0]
	const keys = 500
	for i := range keys {
		h.add(p, &p.limits[0], fmt.Sprint("k", i), "n1", bounds.Event{Sent: 1, Received: 2, N: 1, Kind: bounds.Granted})
	}
	var checks sync.WaitGroup
	for range 4 {
		checks.Go(func() { h.check(false) })
	}
	checks.Wait()
	if of := h.check(true)[p.name]; of.groups != keys || of.granted != keys || len(h.groups) != 0 {
		t.Errorf("%+v, %d are open", of, len(h.groups))
	}
}
