package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// lines are those of a log, without the time.
func lines(b *bytes.Buffer) []string {
	defer b.Reset()
	return slices.Collect(strings.Lines(b.String()))
}

func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestRefusalLog(t *testing.T) {
	clock := manualclock.New(0)
	var b bytes.Buffer
	l, err := policy.NewRefusalLog(policy.RefusalLogOptions{
		Logger: logTo(&b), Clock: clock, Keys: policy.KeysPlain, Rate: weir.PerMinute(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	set := login()
	set.Policies = append(set.Policies, policy.Policy{Name: "other", Limits: one(perHour(1))})
	e := engine(t, set, manual(clock), func(o *policy.EngineOptions) { o.OnRefused = l.Refused })
	wantTakes(t, e, ann, 2, 2)
	if n := b.Len(); n != 0 {
		t.Errorf("of what was granted: %s", b.String())
	}
	takes(e, ann, 10)
	const refusal = `level=INFO msg="request refused" policy=login reason=limited retry_after=1h0m0s limit=1h rule=all cost=1 remaining=0` +
		` max=2 key=192.0.2.1 method=GET client=192.0.2.1 unlogged=`
	if got := lines(&b); len(got) != 2 || got[0] != refusal+"0\n" || got[1] != refusal+"0\n" {
		t.Errorf("%q", got)
	}
	var v policy.Verdict
	takeKey(context.Background(), e, "other", "k", 2, &v)
	const named = `level=INFO msg="request refused" policy=other reason=never retry_after=never limit=1h cost=2 remaining=1 max=1` +
		` key=k unlogged=0`
	if got := lines(&b); len(got) != 1 || got[0] != named+"\n" {
		t.Errorf("of another policy: %q", got)
	}
	clock.Advance(30 * time.Second)
	takes(e, ann, 10)
	if got := lines(&b); len(got) != 1 || !strings.HasSuffix(got[0], " unlogged=8\n") {
		t.Errorf("%q", got)
	}
	clock.Advance(30 * time.Second)
	takes(e, ann, 10)
	if got := lines(&b); len(got) != 1 || !strings.HasSuffix(got[0], " unlogged=9\n") { // those since the line before
		t.Errorf("%q", got)
	}
	r := request(ann)
	e.TakeAll(context.Background(), slices.Repeat([]*policy.Request{&r}, 65), &v)
	if got := lines(&b); len(got) != 1 || got[0] != "level=INFO msg=\"request refused\" reason=invalid retry_after=never method=GET"+
		" client=192.0.2.1 requests=65 unlogged=0\n" {
		t.Errorf("%q", got)
	}
}

// TestRefusalLogLinesAreBounded: whatever a client sends, a line about it is short.
func TestRefusalLogLinesAreBounded(t *testing.T) {
	var b bytes.Buffer
	l, err := policy.NewRefusalLog(policy.RefusalLogOptions{Logger: logTo(&b), Keys: policy.KeysPlain})
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, login(), func(o *policy.EngineOptions) { o.OnRefused = l.Refused })
	long := strings.Repeat("X", 60_000)
	var v policy.Verdict
	for range 3 {
		e.Take(&policy.Request{
			Method: long, Host: long, Path: "/" + long, Query: long, Route: long, Protocol: long, Client: netip.MustParseAddr(ann),
		}, &v)
		v.Release()
	}
	if got := lines(&b); len(got) != 1 || len(got[0]) > 4096 || !strings.Contains(got[0], " method=XXX") {
		t.Errorf("%d lines: %.300q", len(got), got)
	}
}

func TestRefusalLogHashesKeys(t *testing.T) {
	refuse := func(o policy.RefusalLogOptions) (string, *policy.RefusalLog) {
		var b bytes.Buffer
		o.Logger = logTo(&b)
		l, err := policy.NewRefusalLog(o)
		if err != nil {
			t.Fatal(err)
		}
		e := engine(t, login(), func(o *policy.EngineOptions) { o.OnRefused = l.Refused })
		takes(e, ann, 3)
		return b.String(), l
	}
	line, l := refuse(policy.RefusalLogOptions{})
	hash := l.Hash(ann)
	if len(hash) != 16 || strings.Contains(line, ann) || !strings.Contains(line, " key="+hash+" ") ||
		!strings.Contains(line, " client="+hash+" ") {
		t.Errorf("hash %s: %s", hash, line)
	}
	if _, other := refuse(policy.RefusalLogOptions{}); other.Hash(ann) == hash {
		t.Error("another log has the same secret")
	}
	secret := []byte("0123456789abcdef")
	_, a := refuse(policy.RefusalLogOptions{Secret: secret})
	// As made by: printf 192.0.2.1 | openssl dgst -sha256 -hmac 0123456789abcdef
	if got := a.Hash(ann); got != wantHash {
		t.Errorf("the hash is %s, want %s", got, wantHash)
	}
	clear(secret)
	if got := a.Hash(ann); got != wantHash {
		t.Errorf("the hash is %s after the secret of the caller has changed", got)
	}
	if line, _ = refuse(policy.RefusalLogOptions{Keys: policy.KeysNone}); strings.Contains(line, "key=") || strings.Contains(line, "client=") {
		t.Errorf("%s", line)
	}
}

func TestRefusalLogRefusesWrongOptions(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for says, o := range map[string]policy.RefusalLogOptions{
		"RefusalLogOptions.Logger is nil":         {},
		"RefusalLogOptions.Keys is LoggedKeys(3)": {Logger: logger, Keys: 3},
		"RefusalLogOptions.Secret is 15 bytes":    {Logger: logger, Secret: make([]byte, 15)},
		"RefusalLogOptions.Secret is 1025 bytes":  {Logger: logger, Secret: make([]byte, 1025)},
		"RefusalLogOptions.Rate":                  {Logger: logger, Rate: weir.Rate{Permits: -1, Period: time.Second}},
	} {
		_, err := policy.NewRefusalLog(o)
		var misuse *weir.OptionError
		if !errors.As(err, &misuse) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
	for k, name := range map[policy.LoggedKeys]string{
		policy.KeysHashed: "hashed", policy.KeysPlain: "plain", policy.KeysNone: "none",
	} {
		var back policy.LoggedKeys
		if err := back.UnmarshalText([]byte(name)); err != nil || back != k || k.String() != name {
			t.Errorf("%v: %v %v", name, back, err)
		}
	}
	if err := new(policy.LoggedKeys).UnmarshalText([]byte("all")); err == nil {
		t.Error("no error for another word")
	}
}

// TestRefusalsThatAreNotLoggedAllocateNothing: neither the log nor telling it does.
func TestRefusalsThatAreNotLoggedAllocateNothing(t *testing.T) {
	if race.Enabled {
		return // which allocates itself
	}
	var b bytes.Buffer
	l, err := policy.NewRefusalLog(policy.RefusalLogOptions{Logger: logTo(&b), Rate: weir.PerHour(1)})
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, login(), func(o *policy.EngineOptions) { o.OnRefused = l.Refused })
	takes(e, ann, 3)
	var v policy.Verdict
	r := request(ann)
	if n := testing.AllocsPerRun(1000, func() {
		e.Take(&r, &v)
		v.Release()
	}); n > 0 || v.Allowed {
		t.Errorf("%v allocations for a refusal", n)
	}
	if len(lines(&b)) != 1 {
		t.Error("more than one was logged")
	}
}

// TestRefusalLogOfManyPolicies: memory is bounded where names of policies come and go.
func TestRefusalLogOfManyPolicies(t *testing.T) {
	var b bytes.Buffer
	l, err := policy.NewRefusalLog(policy.RefusalLogOptions{Logger: logTo(&b), Rate: weir.PerHour(1)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		p := policy.Policy{Name: fmt.Sprint("p", i), Limits: []policy.Limit{{Limit: perHour(1), Name: "1h"}}}
		v := policy.Verdict{Parts: []policy.Part{{Policy: &p}}}
		if l.Refused(nil, &v) != 0 {
			t.Fatal("a log has no IDs")
		}
	}
	if n := len(lines(&b)); n != 4097 {
		t.Errorf("%d were logged, want one of each of 4096 and one of all others", n)
	}
}

const wantHash = "834648f6724c306a"

// TestRefusalLogHasUnits: a time that a program reads in a JSON log says what it is, as it does in text.
func TestRefusalLogHasUnits(t *testing.T) {
	for name, handler := range map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{
		`"retry_after":"1h0m0s"`: func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
		`retry_after=1h0m0s`:     func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
	} {
		var b bytes.Buffer
		l, err := policy.NewRefusalLog(policy.RefusalLogOptions{Logger: slog.New(handler(&b, nil))})
		if err != nil {
			t.Fatal(err)
		}
		e := engine(t, login(), manual(manualclock.New(0)), func(o *policy.EngineOptions) { o.OnRefused = l.Refused })
		takes(e, ann, 3)
		if !strings.Contains(b.String(), name) {
			t.Errorf("%s is not in %s", name, b.String())
		}
	}
}
