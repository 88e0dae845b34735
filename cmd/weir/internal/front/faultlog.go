package front

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/weirhq/weir"
)

// faultLog is the handler of a [FaultLog].
type faultLog struct {
	slog.Handler

	limit      *weir.Limiter
	suppressed *atomic.Int64
}

const faultBurst = 10

// FaultLog returns a logger to log for lines about faults that a client can cause any number of times: at most ten at once, and
// then one a second. What was left out is counted in the next line.
func FaultLog(log *slog.Logger) *slog.Logger {
	limit, err := weir.New(weir.TokenBucket(weir.PerSecond(1), faultBurst), weir.Options{Name: "log"})
	if err != nil {
		panic(err) // the limit is always the same
	}
	return slog.New(&faultLog{log.Handler(), limit, new(atomic.Int64)})
}

// Handle implements slog.Handler.
func (l *faultLog) Handle(ctx context.Context, r slog.Record) error {
	if !l.limit.Allow() {
		l.suppressed.Add(1)
		return nil
	}
	if n := l.suppressed.Swap(0); n > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("suppressed", n))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *faultLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &faultLog{l.Handler.WithAttrs(attrs), l.limit, l.suppressed}
}

// WithGroup implements slog.Handler.
func (l *faultLog) WithGroup(name string) slog.Handler {
	return &faultLog{l.Handler.WithGroup(name), l.limit, l.suppressed}
}
