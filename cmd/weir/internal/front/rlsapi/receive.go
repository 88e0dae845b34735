package rlsapi

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// receiving bounds the calls whose request has not come yet. It comes with the header of the call as a rule, so there are
// hardly ever several; but a client can begin calls and never say what it wants.
type receiving struct {
	waiting  atomic.Int64
	few      int64 // calls that may wait as long as they like
	most     int64 // beyond that they are refused
	patience time.Duration
}

func newReceiving() *receiving { return &receiving{few: 64, most: 10_000, patience: 10 * time.Second} }

// receive receives the request of a call, and answers that call or, if the request may still come, another one.
func (r *receiving) receive(s *service, dec func(any) error) (*call, error) {
	n := r.waiting.Add(1)
	defer r.waiting.Add(-1)
	switch {
	case n > r.most:
		return nil, status.Errorf(codes.ResourceExhausted, "weir: %d calls wait for their requests", n-1)
	case n > r.few:
		return r.receiveSoon(s, dec)
	}
	c := s.calls.get()
	if err := dec(c); err != nil {
		s.calls.put(c)
		return nil, err
	}
	return c, nil
}

// receiveSoon waits for a request as long as there is patience. What still waits for it ends with the call.
func (r *receiving) receiveSoon(s *service, dec func(any) error) (*call, error) {
	c := s.calls.get()
	received := make(chan error, 1)
	go func() { received <- dec(c) }()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case err := <-received:
		if err != nil {
			s.calls.put(c)
			return nil, err
		}
		return c, nil
	case <-timer.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "weir: the request has not come within %v", r.patience)
	}
}
