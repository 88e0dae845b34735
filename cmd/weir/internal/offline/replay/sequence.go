package replay

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
)

// checkEvery is how many records are read between two looks at the context and the progress.
const checkEvery = 1 << 12

// heldBack bounds how many requests are held back to put them in order.
const heldBack = 1 << 20

// sequence hands on requests in the order of their times, as far as an [order] can make it.
type sequence struct {
	take func(at int64, request []byte)

	order     order
	begun     bool
	latest    int64         // of the lines, in nanoseconds since 1970
	reordered int64         // requests that stand behind a later one in the log
	furthest  time.Duration // by how much at most
}

func newSequence(take func(at int64, request []byte)) *sequence {
	return &sequence{take: take, order: order{size: heldBack}}
}

// add puts a request in its place. It is copied.
func (s *sequence) add(at int64, request []byte) {
	if !s.begun {
		s.begun, s.latest = true, at
	}
	if at < s.latest {
		s.reordered++
		s.furthest = max(s.furthest, time.Duration(s.latest-at))
	}
	s.latest = max(s.latest, at)
	if s.order.full() {
		s.take(s.order.next())
	}
	s.order.add(at, request)
}

// drain hands on the requests that are held back.
func (s *sequence) drain() {
	for !s.order.empty() {
		s.take(s.order.next())
	}
}

// readRecords reads all records of r. It ends early, with the error, if ctx ends or the log cannot be read. It calls progress now
// and then.
func readRecords(ctx context.Context, r *accesslog.Reader, read func(*accesslog.Record), progress func()) error {
	var rec accesslog.Record
	for n := 1; ; n++ {
		if n%checkEvery == 0 {
			progress()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		switch err := r.Next(&rec); {
		case err == nil:
			read(&rec)
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
