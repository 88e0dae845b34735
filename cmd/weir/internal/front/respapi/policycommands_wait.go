package respapi

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// goneError is told to a client that has gone while it waited: nobody reads it.
const goneError = "ERR the connection was lost"

// patient is a client that is ready to wait.
type patient interface {
	// blocks prepares the client for a while in which it gets no reply: those before are sent. gone is called if it goes away.
	// After that, ready must be called.
	blocks(gone func()) (ready func())
	// address is that of the client, the zero Addr if it is not known.
	address() netip.Addr
}

// waiting is [policy.Engine.Wait] or WaitReserve.
type waiting func(ctx context.Context, r *policy.Request, v *policy.Verdict) error

// wait decides on a request for a client that is ready to wait. It is false if the client has gone, which got nothing then.
func (p *policyCommands) wait(
	ctx context.Context, from patient, most time.Duration, r *policy.Request, v *policy.Verdict, how waiting,
) (stays bool) {
	whole := ctx
	there, leave := context.WithCancel(ctx)
	defer leave()
	stop := context.AfterFunc(p.waiting, leave) //nolint:contextcheck // it is that of the server
	defer stop()
	left, cancel := context.WithTimeout(there, most)
	defer cancel()
	gone := false
	ready := from.blocks(func() {
		gone = true
		leave()
	})
	r.Context = there // a store may take longer to answer than the client waits for permits
	err := how(left, r, v)
	ready()
	r.Context = nil
	switch {
	case err == nil || errors.Is(err, weir.ErrRefused): // the verdict says so
		return true
	case gone || whole.Err() != nil:
		return false
	}
	answer.Close(v)
	return true
}

// address implements patient.
func (c *conn) address() netip.Addr {
	address, _ := clientip.Parse(c.plain.RemoteAddr().String())
	return address
}

// blocks implements patient.
func (c *conn) blocks(gone func()) (ready func()) {
	if !c.mute.any && !c.flush() {
		c.ending = true
		gone()
		return func() {}
	}
	_ = c.setReadDeadline(time.Time{})
	ended, left := make(chan struct{}), false
	go func() {
		defer close(ended)
		if left = hasGone(c.plain); left {
			gone()
		}
	}()
	return func() {
		_ = c.plain.SetReadDeadline(longAgo) // ends hasGone
		<-ended
		c.ending = c.ending || left
		_ = c.setReadDeadline(time.Time{})
		disarm(c.via)
	}
}
