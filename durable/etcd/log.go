package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// mostLogged is how many lines of etcd are logged in a second; the rest is counted.
const mostLogged = 10

// onePort is what etcd says of every server that does not serve clients by HTTP, as this one never does.
const onePort = "Running http and grpc server on single port. This is not recommended for production."

// logCore gives what etcd logs from a warning upwards to a slog.Logger. It implements zapcore.Core.
type logCore struct {
	logger *slog.Logger
	attrs  []slog.Attr
	rate   *logRate
}

type logRate struct {
	mu      sync.Mutex
	second  int64
	count   int
	dropped int
}

// take tells whether a line may be logged, and how many were not since the last one.
func (r *logRate) take(now time.Time) (dropped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := now.Unix(); s != r.second {
		r.second, r.count = s, 0
	}
	if r.count++; r.count > mostLogged {
		r.dropped++
		return 0, false
	}
	dropped, r.dropped = r.dropped, 0
	return dropped, true
}

// Enabled implements [zapcore.LevelEnabler].
func (c *logCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements [zapcore.Core].
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	d := *c
	d.attrs = append(append([]slog.Attr(nil), c.attrs...), attributes(fields)...)
	return &d
}

// Check implements [zapcore.Core].
func (c *logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements [zapcore.Core]. What ends the server is always logged.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if c.logger == nil || e.Message == onePort {
		return nil
	}
	dropped, ok := c.rate.take(e.Time)
	if !ok && e.Level < zapcore.DPanicLevel {
		return nil
	}
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	attrs := append(append([]slog.Attr{slog.String("etcd", e.Message)}, c.attrs...), attributes(fields)...)
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	c.logger.LogAttrs(context.Background(), level, "the etcd server of the durable limits", attrs...)
	return nil
}

// Sync implements [zapcore.Core].
func (c *logCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []slog.Attr {
	e := zapcore.NewMapObjectEncoder()
	attrs := make([]slog.Attr, 0, len(fields))
	for i := range fields {
		f := &fields[i]
		if f.Type == zapcore.SkipType || f.Key == "stacktrace" {
			continue
		}
		f.AddTo(e)
		if v, ok := e.Fields[f.Key]; ok {
			attrs = append(attrs, slog.String(f.Key, fmt.Sprintf("%.500v", v)))
		}
	}
	return attrs
}

// failure is how an etcd server that cannot go on tells so.
type failure struct {
	once sync.Once
	done chan struct{}
	err  error // once done is closed
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

func (f *failure) fail(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// OnWrite implements [zapcore.CheckWriteHook]: it is called for what would end the process, and ends the goroutine in its place.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	enc := zapcore.NewMapObjectEncoder()
	for i := range fields {
		fields[i].AddTo(enc)
	}
	delete(enc.Fields, "stacktrace")
	f.fail(fmt.Errorf("%s: %.500v", e.Message, enc.Fields))
	runtime.Goexit()
}

// zapLogger is a logger for etcd that tells f instead of ending the process.
func zapLogger(l *slog.Logger, f *failure) *zap.Logger {
	return zap.New(&logCore{logger: l, rate: new(logRate)}, zap.WithFatalHook(f), zap.WithPanicHook(f))
}
