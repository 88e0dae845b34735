package live

import (
	"context"
	"log/slog"
)

// WithoutChecks is a logger that leaves out of its lines the names of the rules for checks, which nobody has written.
func WithoutChecks(l *slog.Logger) *slog.Logger { return slog.New(checkless{l.Handler()}) }

type checkless struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h checkless) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "rule" || !isCheck(a.Value.String()) {
			line.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements [slog.Handler].
func (h checkless) WithAttrs(attrs []slog.Attr) slog.Handler {
	return checkless{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h checkless) WithGroup(name string) slog.Handler {
	return checkless{h.Handler.WithGroup(name)}
}
