package httpclient

import (
	"container/list"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// hosts are the hosts that a [Transport] remembers, at most so many.
type hosts struct {
	options *Options

	mu     sync.Mutex
	byName map[string]*host
	used   list.List // of *host, the last used first
}

func newHosts(o *Options) *hosts {
	return &hosts{options: o, byName: map[string]*host{}}
}

// mostLooked is how many hosts are looked at to find one that can be forgotten.
const mostLooked = 64

// enter returns the host of this name for a request, which must leave it. The error says that there is no room for it.
func (s *hosts) enter(name string) (*host, *LimitedError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.byName[name]; ok {
		h.users++
		s.used.MoveToFront(h.place)
		return h, nil
	}
	h := &host{name: name, options: s.options, users: 1}
	if len(s.byName) >= s.options.MaxHosts && !s.forget() {
		if s.options.AdmitWhenFull {
			return h, nil // it is never found again
		}
		return nil, &LimitedError{Host: name, Reason: weir.ReasonTableFull}
	}
	h.place = s.used.PushFront(h)
	s.byName[name] = h
	return h, nil
}

// forget makes room for one host.
func (s *hosts) forget() bool {
	now := time.Now()
	for range min(mostLooked, s.used.Len()) {
		place := s.used.Back()
		h := place.Value.(*host) //nolint:errcheck,forcetypeassert // nothing else is in it
		if h.users == 0 && h.idle(now) {
			s.used.Remove(place)
			delete(s.byName, h.name)
			return true
		}
		s.used.MoveToFront(place)
	}
	return false
}

// leave ends what enter began.
func (s *hosts) leave(h *host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.users--
}

func (s *hosts) find(name string) *host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}
