// Package front is the harness of the fronts of the server: it listens, speaks TLS with certificates that are read again, bounds
// connections, drains and shuts down. A front itself decodes what a client asks, has it decided, and encodes the answer.
package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Front serves the clients of one protocol.
type Front interface {
	// Serve serves the clients of a listener until Shutdown, or returns why it cannot. Its error after Shutdown does not count.
	Serve(l net.Listener) error
	// Drain is called when the shutdown begins: everything is answered as before, and clients that ask are told. It returns how
	// many requests are in flight, as far as that is counted.
	Drain() (inFlight int64)
	// Shutdown accepts no more, answers what was accepted, and then ends. What is not answered when ctx ends is cut off, and the
	// error says so.
	Shutdown(ctx context.Context) error
}

// Listening is a front with what it listens on.
type Listening struct {
	Made

	Name     string // of its flag
	Listener net.Listener
}

// Group is all fronts of a server, which begin and end together.
type Group struct {
	All []Listening
	Log *slog.Logger
	// Delay is how long a shutdown lets them go on, Timeout how long requests may take after that.
	Delay, Timeout time.Duration
	// OnDrain is called when the shutdown begins, before the fronts drain. Default: nil.
	OnDrain func()
	// OnEnd is called when the delay has passed, before they shut down: no request waits for permits any more. Default: nil.
	OnEnd func()
}

// Close closes the listeners of fronts that never served.
func (f *Group) Close() {
	for _, l := range f.All {
		_ = l.Listener.Close() // no client has connected yet
	}
}

// Serve serves until ctx ends or one of the fronts fails, and then shuts all of them down: they go on until the delay has passed,
// and end when everything is answered that was accepted. What takes longer than the timeout after the delay is cut off,
// which is an error.
func (f *Group) Serve(ctx context.Context) error {
	failed := make(chan error, len(f.All))
	for _, l := range f.All {
		go func() {
			if err := l.Front.Serve(l.Listener); err != nil {
				failed <- fmt.Errorf("weir: serving --%s %s: %w", l.Name, l.Listener.Addr(), err)
				return
			}
			failed <- nil
		}()
	}
	var failure error
	left := len(f.All)
	select {
	case failure = <-failed:
		left--
	case <-ctx.Done():
	}
	if f.OnDrain != nil {
		f.OnDrain()
	}
	inFlight := int64(0)
	for _, l := range f.All {
		inFlight += l.Front.Drain()
	}
	f.Log.Info("stopping", "in_flight", inFlight, "delay", f.Delay.String(), "timeout", f.Timeout.String())
	if failure == nil {
		<-time.After(f.Delay)
	}
	if f.OnEnd != nil {
		f.OnEnd()
	}
	err := f.shutdown(context.WithoutCancel(ctx))
	for range left {
		if ended := <-failed; ended != nil {
			f.Log.Debug("a front has ended", "error", ended.Error()) // which the shutdown has caused
		}
	}
	return errors.Join(failure, err)
}

// shutdown ends all fronts at a time.
func (f *Group) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	ended := make(chan error, len(f.All))
	for _, l := range f.All {
		go func() {
			err := l.Front.Shutdown(ctx)
			if err != nil {
				err = fmt.Errorf("weir: requests in flight were cut off at --%s, as they took longer than --shutdown-timeout %v",
					l.Name, f.Timeout)
			}
			ended <- err
		}()
	}
	errs := make([]error, len(f.All))
	for i := range errs {
		errs[i] = <-ended
	}
	return errors.Join(errs...)
}
