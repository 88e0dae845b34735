package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestLogRepeats: what etcd says again and again is logged every 10 s, with how often it was said, for each node it is about, and no
// number of different lines is more than 10 in a second.
func TestLogRepeats(t *testing.T) {
	var out bytes.Buffer
	core := &logCore{logger: slog.New(slog.NewTextHandler(&out, nil)), rate: new(logRate)}
	begin := time.Unix(1_700_000_000, 0)
	say := func(after time.Duration, text string, fields ...zap.Field) {
		if err := core.Write(zapcore.Entry{Level: zapcore.WarnLevel, Time: begin.Add(after), Message: text}, fields); err != nil {
			t.Fatal(err)
		}
	}
	logged := func() int {
		n := strings.Count(out.String(), "\n")
		out.Reset()
		return n
	}

	for range 1000 {
		say(0, "lost", zap.String("remote-peer-id", "a"))
		say(0, "lost", zap.String("remote-peer-id", "b"))
	}
	if n := logged(); n != 2 {
		t.Errorf("%d lines of two nodes", n)
	}
	say(repeatAfter, "lost", zap.String("remote-peer-id", "a"))
	if !strings.Contains(out.String(), "repeated=999") || logged() != 1 {
		t.Error("it does not say that it was said before")
	}
	for i := range 10_000 {
		say(repeatAfter+time.Second, fmt.Sprint("line ", i))
	}
	if n := logged(); n != mostLogged || len(core.rate.said) > mostRemembered {
		t.Errorf("%d lines in a second, %d remembered", n, len(core.rate.said))
	}
	for i := range 1000 {
		say(time.Duration(100+i)*time.Second, fmt.Sprint("line ", i))
	}
	if n := logged(); n != 1000 || len(core.rate.said) > mostRemembered {
		t.Errorf("%d lines in 1000 s, %d remembered", n, len(core.rate.said))
	}
	say(time.Hour, "failed to update storage version", zap.Error(errors.New("cannot detect storage schema version: missing term information")))
	say(time.Hour, "simple token is not cryptographically signed")
	if n := logged(); n != 0 {
		t.Errorf("%d lines that mean nothing", n)
	}
	say(time.Hour, "failed to update storage version", zap.Error(errors.New("disk full")))
	if n := logged(); n != 1 {
		t.Errorf("%d lines of a real error", n)
	}
}

// TestLogNumbers: numbers have their own digits, and long values are cut.
func TestLogNumbers(t *testing.T) {
	var out bytes.Buffer
	l := zapLogger(slog.New(slog.NewTextHandler(&out, nil)), newFailure(t.TempDir()))
	l.Warn("failed to get hashKV", zap.Int64("requested-revision", 21), zap.String("long", strings.Repeat("x", 1000)))
	if !strings.Contains(out.String(), " requested-revision=21 long="+strings.Repeat("x", 500)+"\n") {
		t.Error(out.String())
	}
}
