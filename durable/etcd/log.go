package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// aboutEtcd is the text of all lines of etcd.
const aboutEtcd = "the etcd server of the durable limits"

const (
	// mostLogged is how many lines of etcd are logged in a second; the rest is counted.
	mostLogged = 10
	// repeatAfter is how long etcd says the same about the same node before it is logged again, with how often it was said.
	repeatAfter = 10 * time.Second
	// mostRemembered is how many different lines are known by which that is told.
	mostRemembered = 256
)

// harmless is what etcd says of every server, or of every one that is new: it serves no clients by HTTP and has no users, a new
// database has no version before its first snapshot, and a listener that is closed takes no more connections.
func harmless(e *zapcore.Entry, attrs []slog.Attr) bool {
	switch e.Message {
	case "Running http and grpc server on single port. This is not recommended for production.",
		"simple token is not cryptographically signed",
		"leadership transfer failed": // of a server that was stopped, and gave the lead away before
		return true
	case "failed to update storage version":
		return mentions(attrs, "missing term information")
	case "setting up serving from embedded etcd failed.":
		return mentions(attrs, net.ErrClosed.Error())
	}
	return false
}

// minor are warnings of etcd that an operator need not see, and that are logged as details: what it says of each of
// several connections when it says as well that a node became inactive, and what it asks others again.
var minor = map[string]bool{ //nolint:gochecknoglobals // a constant
	"closed TCP streaming connection with remote peer":       true,
	"lost TCP streaming connection with remote peer":         true,
	"failed to find remote peer in cluster":                  true,
	"failed to reach the peer URL":                           true,
	"failed to get version":                                  true,
	"waiting for ReadIndex response took too long, retrying": true,
	"ignored out-of-date read index response; local node read indexes queueing up and waiting to be in sync with leader": true,
	"apply request took too long":                                true, // a disk that is slow is told of by "slow fdatasync"
	"failed to publish local member to cluster through raft":     true, // which no caller waits for
	"stopped publish because server is stopping":                 true,
	"dropped internal Raft message since sending buffer is full": true,
}

// mentions reports whether the error is this one.
func mentions(attrs []slog.Attr, text string) bool {
	for _, a := range attrs {
		if a.Key == "error" {
			return strings.Contains(a.Value.String(), text)
		}
	}
	return false
}

// logCore gives what etcd logs from a warning upwards to a slog.Logger. It implements zapcore.Core.
type logCore struct {
	logger  *slog.Logger
	attrs   []slog.Attr
	rate    *logRate
	failure *failure // of the server
}

type logRate struct {
	mu      sync.Mutex
	second  int64
	count   int
	dropped int
	said    map[string]*said
}

// said is a line that was logged, and how often it was said since then.
type said struct {
	at    time.Time
	again int
}

// take reports whether a line may be logged, how often it was said since it was logged last, and how many others were not logged.
func (r *logRate) take(now time.Time, line string) (again, dropped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.said[line]
	if last != nil && now.Sub(last.at) < repeatAfter {
		last.again++
		return 0, 0, false
	}
	if s := now.Unix(); s != r.second {
		r.second, r.count = s, 0
	}
	if r.count++; r.count > mostLogged {
		r.dropped++
		return 0, 0, false
	}
	if last == nil {
		if r.said == nil || len(r.said) == mostRemembered {
			r.said = map[string]*said{}
		}
		last = new(said)
		r.said[line] = last
	}
	again, dropped = last.again, r.dropped
	*last, r.dropped = said{at: now}, 0
	return again, dropped, true
}

// about is what tells lines of etcd apart that may be said often: the text, and which other node it is about.
func about(text string, attrs []slog.Attr) string {
	for _, a := range attrs {
		switch a.Key {
		case "remote-peer-id", "remote-member-id", "peer-id", "to":
			return text + " " + a.Value.String()
		}
	}
	return text
}

// Enabled implements [zapcore.LevelEnabler].
func (c *logCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements [zapcore.Core].
func (c *logCore) With(fields []zapcore.Field) zapcore.Core { //nolint:ireturn // that of the interface
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
	if e.Message == "found different hash values from remote peer" && c.failure != nil {
		c.failure.differ.Add(1)
	}
	if c.logger == nil {
		return nil
	}
	detail := e.Level < zapcore.DPanicLevel && (c.failure.leaves() || minor[e.Message])
	if detail && !c.logger.Enabled(context.Background(), slog.LevelDebug) {
		return nil
	}
	attrs := append(append([]slog.Attr{slog.String("etcd", e.Message)}, c.attrs...), attributes(fields)...)
	if harmless(&e, attrs) {
		return nil
	}
	if detail {
		c.logger.LogAttrs(context.Background(), slog.LevelDebug, aboutEtcd, attrs...)
		return nil
	}
	again, dropped, ok := c.rate.take(e.Time, about(e.Message, attrs))
	if !ok && e.Level < zapcore.DPanicLevel {
		return nil
	}
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	if again > 0 {
		attrs = append(attrs, slog.Int("repeated", again))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	c.logger.LogAttrs(context.Background(), level, aboutEtcd, attrs...)
	return nil
}

// Sync implements [zapcore.Core].
func (c *logCore) Sync() error { return nil }

// short is the beginning of what a value is printed as. A precision for the value itself would print numbers with as many digits.
func short(v any) string { return fmt.Sprintf("%.500s", fmt.Sprint(v)) }

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
			attrs = append(attrs, slog.String(f.Key, short(v)))
		}
	}
	return attrs
}

// failure is how an etcd server that cannot go on tells so.
type failure struct {
	directory string

	once sync.Once
	done chan struct{}
	err  error // once done is closed

	differ  atomic.Int64 // how many others have other records, as etcd says while it starts
	leaving atomic.Bool  // the server is closed, so that what it says of its connections means nothing
}

// leaves reports whether the server is closed.
func (f *failure) leaves() bool { return f != nil && f.leaving.Load() }

func newFailure(directory string) *failure {
	return &failure{directory: directory, done: make(chan struct{})}
}

func (f *failure) fail(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// logNotWritten is what etcd says where it cannot write entries to its log.
const logNotWritten = "failed to save Raft hard state and entries"

// OnWrite implements [zapcore.CheckWriteHook]: it is called for what would end the process, and ends the goroutine in its place.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	enc := zapcore.NewMapObjectEncoder()
	for i := range fields {
		fields[i].AddTo(enc)
	}
	delete(enc.Fields, "stacktrace")
	if e.Message == logNotWritten {
		noteUnwritten(f.directory)
	}
	f.fail(fmt.Errorf("%s: %s", e.Message, short(enc.Fields)))
	runtime.Goexit()
}

// zapLogger is a logger for etcd that tells f instead of ending the process.
func zapLogger(l *slog.Logger, f *failure) *zap.Logger {
	return zap.New(&logCore{logger: l, rate: new(logRate), failure: f}, zap.WithFatalHook(f), zap.WithPanicHook(f))
}
