package front

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conns are the connections of a server with a protocol of its own: they begin at its listeners, and end with it. All methods are
// safe for concurrent use.
type Conns[C comparable] struct {
	// Running are the goroutines that the end of the server waits for: of each connection, and those that they begin themselves.
	Running sync.WaitGroup

	log        *slog.Logger
	ending     atomic.Bool
	done, over chan struct{}

	mu        sync.Mutex
	listeners []net.Listener
	open      map[C]struct{}
}

// NewConns makes those of a server. Logger logs at level Warn that clients cannot be accepted.
func NewConns[C comparable](logger *slog.Logger) *Conns[C] {
	return &Conns[C]{log: logger, done: make(chan struct{}), over: make(chan struct{}), open: make(map[C]struct{})}
}

// Serve calls accept for each connection of a listener, which it closes, until [Conns.Shutdown]: then it returns nil.
func (s *Conns[C]) Serve(l net.Listener, accept func(nc net.Conn)) error {
	defer l.Close() //nolint:errcheck // it may be closed already
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	const shortest, longest = 5 * time.Millisecond, time.Second
	for pause := shortest; !s.Ending(); {
		nc, err := l.Accept()
		var brief interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = shortest
			accept(nc)
			continue
		case s.Ending():
			return nil
		case !errors.As(err, &brief) || !brief.Temporary():
			return err
		}
		// There are too many open files, for instance.
		s.log.Warn("a client cannot be accepted", "address", l.Addr().String(), "error", err, "again_in", pause.String())
		select {
		case <-time.After(pause):
		case <-s.done:
		}
		pause = min(2*pause, longest)
	}
	return nil
}

// Add serves a connection by a goroutine, until serve returns false. Each time it returns true it is called again by a goroutine
// of its own, whose stack is as small as that of the first was. It is false if the server ends: then the connection is to be
// closed.
func (s *Conns[C]) Add(c C, serve func() (again bool)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Ending() {
		return false
	}
	s.open[c] = struct{}{}
	s.run(c, serve)
	return true
}

// run is Add for a connection that is open.
func (s *Conns[C]) run(c C, serve func() (again bool)) {
	s.Running.Go(func() {
		again := false
		defer func() {
			if !again {
				s.remove(c)
			}
		}()
		if again = serve(); again {
			s.run(c, serve)
		}
	})
}

func (s *Conns[C]) remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// Append appends the connections that are open.
func (s *Conns[C]) Append(to []C) []C {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(to, maps.Keys(s.open))
}

// Ending reports whether the server ends.
func (s *Conns[C]) Ending() bool { return s.ending.Load() }

// Over is closed when the server has ended.
func (s *Conns[C]) Over() <-chan struct{} { return s.over }

// Shutdown accepts no more connections, asks all that are open to end, and returns when they have. Those that are left when ctx
// ends are cut off: then it returns how many they were, and the error of ctx.
func (s *Conns[C]) Shutdown(ctx context.Context, ask, cutOff func(c C)) (left int, err error) {
	s.mu.Lock()
	first, listeners := !s.ending.Swap(true), s.listeners
	s.mu.Unlock()
	if first {
		close(s.done)
		go func() {
			s.Running.Wait()
			close(s.over)
		}()
	}
	for _, l := range listeners {
		_ = l.Close() // it accepts no more
	}
	for _, c := range s.Append(nil) {
		ask(c)
	}
	select {
	case <-s.over:
		return 0, nil
	case <-ctx.Done():
	}
	all := s.Append(nil)
	for _, c := range all {
		cutOff(c)
	}
	<-s.over
	return len(all), ctx.Err()
}
