package respapi

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/policy"
)

// goneError is the reply to a client that has gone while it waited: it is never read.
const goneError = "ERR the connection was lost"

// patient is a client that is ready to wait.
type patient interface {
	// blocks prepares the client for a while in which it gets no reply: those before are sent. begin is called once it waits:
	// then gone is called if it goes away. After that, ready must be called, with whether the client got what it has waited for.
	blocks(gone func()) (begin func(), ready func(stays bool))
	// address is that of the client, the zero Addr if it is not known.
	address() netip.Addr
}

// wait decides on a request for a client that is ready to wait. It is false if the client has gone, which got nothing then.
func (p *policyCommands) wait(
	ctx context.Context, from patient, most time.Duration, r *policy.Request, v *policy.Verdict, how holds.Decide,
) (stays bool) {
	there, leave := context.WithCancel(ctx)
	defer leave()
	begin, ready := from.blocks(leave)
	stays = p.waiting.For(there, most, r, v, func(ctx context.Context, r *policy.Request, v *policy.Verdict) error {
		return how(&waited{ctx, begin}, r, v) //nolint:contextcheck // it is that context
	})
	ready(stays)
	r.Context = nil
	return stays
}

// waited calls begin when someone is about to wait for its end.
type waited struct {
	context.Context

	begin func()
}

func (w *waited) Done() <-chan struct{} {
	w.begin()
	return w.Context.Done()
}

// address implements patient.
func (c *conn) address() netip.Addr {
	address, _ := clientip.Parse(c.plain.RemoteAddr().String())
	return address
}

// unwatched is how long a client waits before it is looked whether it goes away. What need not wait is decided even if the client
// has sent all that it will, and may only read.
const unwatched = 10 * time.Millisecond

// blocks implements patient.
func (c *conn) blocks(gone func()) (begin func(), ready func(stays bool)) {
	if !c.mute.any && !c.flush() {
		c.ending = true
		gone()
		return func() {}, func(bool) {}
	}
	_ = c.arm(time.Time{})
	var once sync.Once
	var watch *time.Timer
	ended, left := make(chan struct{}), false
	begin = func() {
		once.Do(func() {
			watch = time.AfterFunc(unwatched, func() {
				defer close(ended)
				if left = hasGone(c.plain); left {
					gone()
				}
			})
		})
	}
	ready = func(stays bool) {
		once.Do(func() {}) // it does not begin any more
		if watch == nil || watch.Stop() {
			return
		}
		_ = c.plain.SetReadDeadline(longAgo) // ends hasGone
		<-ended
		c.ending = c.ending || left && !stays
		_ = c.rearm(time.Time{})
	}
	return begin, ready
}
