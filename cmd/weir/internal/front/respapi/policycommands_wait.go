package respapi

import (
	"context"
	"net/netip"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/policy"
)

// goneError is the reply to a client that has gone while it waited: it is never read.
const goneError = "ERR the connection was lost"

// patient is a client that is ready to wait.
type patient interface {
	// blocks prepares the client for a while in which it gets no reply: those before are sent. gone is called if it goes away.
	// After that, ready must be called, with whether the client got what it has waited for: then its other commands are answered
	// even if it sends no more.
	blocks(gone func()) (ready func(stays bool))
	// address is that of the client, the zero Addr if it is not known.
	address() netip.Addr
}

// wait decides on a request for a client that is ready to wait. It is false if the client has gone, which got nothing then.
func (p *policyCommands) wait(
	ctx context.Context, from patient, most time.Duration, r *policy.Request, v *policy.Verdict, how holds.Decide,
) (stays bool) {
	there, leave := context.WithCancel(ctx)
	defer leave()
	ready := from.blocks(leave)
	stays = p.waiting.For(there, most, r, v, how)
	ready(stays)
	r.Context = nil
	return stays
}

// address implements patient.
func (c *conn) address() netip.Addr {
	address, _ := clientip.Parse(c.plain.RemoteAddr().String())
	return address
}

// unwatched is how long a client waits before it is looked whether it goes away. What is decided at once is decided even if the
// client has sent all that it will, and may only read.
const unwatched = 10 * time.Millisecond

// blocks implements patient.
func (c *conn) blocks(gone func()) (ready func(stays bool)) {
	if !c.mute.any && !c.flush() {
		c.ending = true
		gone()
		return func(bool) {}
	}
	_ = c.arm(time.Time{})
	ended, left := make(chan struct{}), false
	watch := time.AfterFunc(unwatched, func() {
		defer close(ended)
		if left = hasGone(c.plain); left {
			gone()
		}
	})
	return func(stays bool) {
		if watch.Stop() {
			return
		}
		_ = c.plain.SetReadDeadline(longAgo) // ends hasGone
		<-ended
		c.ending = c.ending || left && !stays
		_ = c.rearm(time.Time{})
	}
}
