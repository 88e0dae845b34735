package grpclimit

import (
	"context"
	"slices"
	"sync/atomic"
)

type overKey struct{}

// Over returns the names of the policies in [policy.ModeTag] that would have refused the call with this context, which a [Server]
// has let pass nevertheless: see [policy.Verdict.Over]. Its handler may do less for it. Those of the innermost Server come first,
// and with MessageCost those of the message that was received last before those of the stream. There are none of what costs
// nothing.
func Over(ctx context.Context) []string {
	names, _ := ctx.Value(overKey{}).([]string)
	return names
}

// charged is the context of a call that a Server has allowed. The Server itself is the key.
type charged struct {
	context.Context //nolint:containedctx // it is a context

	by      *Server
	over    []string                 // policies in ModeTag: of the call
	message atomic.Pointer[[]string] // and of the message that was received last; nil if there are none
}

// Value implements [context.Context].
func (c *charged) Value(key any) any {
	switch k := key.(type) {
	case *Server:
		if k == c.by {
			return c
		}
	case overKey:
		return c.allOver()
	}
	return c.Context.Value(key)
}

func (c *charged) allOver() (names []string) {
	if m := c.message.Load(); m != nil {
		names = slices.Clone(*m)
	}
	for _, more := range [...][]string{c.over, Over(c.Context)} {
		for _, name := range more {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// received notes which policies a message is over, for which h is held.
func (c *charged) received(h *hold) {
	if over := h.over(); over != nil {
		c.message.Store(&over)
	} else if c.message.Load() != nil {
		c.message.Store(nil)
	}
}

// over returns the policies in ModeTag that would have refused what is held; nil if there are none.
func (h *hold) over() []string {
	if h.verdict == nil {
		return nil
	}
	return h.verdict.Over(0)
}
