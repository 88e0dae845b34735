package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// front answers clients of one protocol.
type front interface {
	// Serve answers the clients of a listener until Shutdown, or answers why it cannot. Its error after Shutdown does not count.
	Serve(l net.Listener) error
	// Drain is called when the shutdown begins: everything is answered as before, and those are told who ask how the server is.
	// It answers how many requests are in flight.
	Drain() int64
	// Shutdown accepts no more, answers what was accepted, and then ends. What is not answered when ctx ends is cut off, and the
	// error says so.
	Shutdown(ctx context.Context) error
}

// listening is a front with what it listens on.
type listening struct {
	name     string // of its flag
	front    front
	listener net.Listener
}

// fronts are all of a server, which begin and end together.
type fronts struct {
	all     []listening
	log     *slog.Logger
	delay   time.Duration
	timeout time.Duration
	// onEnd is called when the delay has passed, before they shut down: nobody shall wait for permits any more. Default: nil.
	onEnd func()
}

// close closes the listeners of fronts that never served.
func (f *fronts) close() {
	for _, l := range f.all {
		_ = l.listener.Close() // nobody has connected who would be told
	}
}

// serve serves until ctx ends or one of the fronts fails, and then shuts all of them down: they go on until the delay has passed,
// and end when everything is answered that was accepted. What takes longer than the timeout after the delay is cut off,
// which is an error.
func (f *fronts) serve(ctx context.Context) error {
	failed := make(chan error, len(f.all))
	for _, l := range f.all {
		go func() {
			if err := l.front.Serve(l.listener); err != nil {
				failed <- fmt.Errorf("weir: serving --%s %s: %w", l.name, l.listener.Addr(), err)
				return
			}
			failed <- nil
		}()
	}
	var failure error
	left := len(f.all)
	select {
	case failure = <-failed:
		left--
	case <-ctx.Done():
	}
	inFlight := int64(0)
	for _, l := range f.all {
		inFlight += l.front.Drain()
	}
	f.log.Info("stopping", "in_flight", inFlight, "delay", f.delay.String(), "timeout", f.timeout.String())
	if failure == nil {
		<-time.After(f.delay)
	}
	if f.onEnd != nil {
		f.onEnd()
	}
	err := f.shutdown(context.WithoutCancel(ctx))
	for range left {
		if ended := <-failed; ended != nil {
			f.log.Debug("a front has ended", "error", ended.Error()) // which the shutdown has caused
		}
	}
	return errors.Join(failure, err)
}

// shutdown ends all fronts at a time.
func (f *fronts) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ended := make(chan error, len(f.all))
	for _, l := range f.all {
		go func() {
			err := l.front.Shutdown(ctx)
			if err != nil {
				err = fmt.Errorf("weir: requests in flight were cut off at --%s, as they took longer than --shutdown-timeout %v",
					l.name, f.timeout)
			}
			ended <- err
		}()
	}
	errs := make([]error, len(f.all))
	for i := range errs {
		errs[i] = <-ended
	}
	return errors.Join(errs...)
}

// uncounted is a front that does not count what is in flight.
type uncounted struct {
	uncountedFront
}

type uncountedFront interface {
	Serve(l net.Listener) error
	Drain()
	Shutdown(ctx context.Context) error
}

// Drain implements front.
func (u uncounted) Drain() int64 {
	u.uncountedFront.Drain()
	return 0
}
