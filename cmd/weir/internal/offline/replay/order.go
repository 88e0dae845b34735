package replay

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
)

// checkEvery is how many records are read between two looks at the context and the progress.
const checkEvery = 1 << 12

// heldBack is how many requests are held back to put them in order, and half of how many can be.
const heldBack = 1 << 20

// sequence hands on requests in the order of their times: servers write a line when a request ends, several of them write files
// of their own, and neither comes sorted. It holds back at least size requests and hands on the earliest, the first read where
// times are equal. So a log of up to size requests is sorted as a whole, and in a longer one a request is late only if size
// others were read since those of its time.
type sequence struct {
	take func(at int64, request []byte)
	size int

	held  []held
	text  []byte // of the requests held back
	spare []byte // space for those that stay

	begun     bool
	latest    int64         // of the lines, in nanoseconds since 1970
	reordered int64         // requests that stand behind a later one in the log
	furthest  time.Duration // by how much at most
}

// held is a request that is held back: its time, and where its text lies.
type held struct {
	at         int64
	start, end uint32
}

// mostBytes bounds the text that is held back, which may be as long as a line for each request.
const mostBytes = 256 << 20

func newSequence(take func(at int64, request []byte)) *sequence {
	return &sequence{take: take, size: heldBack}
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
	start := len(s.text)
	s.text = append(s.text, request...)
	s.held = append(s.held, held{at, uint32(start), uint32(len(s.text))})
	if len(s.held) >= 2*s.size || len(s.text) >= mostBytes {
		s.release((len(s.held) + 1) / 2)
	}
}

// drain hands on the requests that are held back.
func (s *sequence) drain() { s.release(len(s.held)) }

// release hands on the n earliest. Most logs are nearly in order, which makes sorting cheap.
func (s *sequence) release(n int) {
	slices.SortStableFunc(s.held, func(a, b held) int { return cmp.Compare(a.at, b.at) })
	for _, h := range s.held[:n] {
		s.take(h.at, s.text[h.start:h.end])
	}
	s.held = s.held[:copy(s.held, s.held[n:])]
	kept := s.spare[:0]
	for i := range s.held {
		h := &s.held[i]
		start := len(kept)
		kept = append(kept, s.text[h.start:h.end]...)
		h.start, h.end = uint32(start), uint32(len(kept))
	}
	s.text, s.spare = kept, s.text
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
