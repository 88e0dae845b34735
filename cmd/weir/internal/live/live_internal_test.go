package live

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

func TestRedactor(t *testing.T) {
	first := newRedactor(map[string]string{"TOKEN": "hunter2", "LONG": "hunter2hunter2", "ONE": "1", "EMPTY": ""}, nil)
	r := newRedactor(map[string]string{"NEW": "correct"}, first)
	for text, want := range map[string]string{
		"": "", "1": "${ONE}", "100/s": "100/s", "is hunter2": "is ${TOKEN}", "hunter2hunter2": "${LONG}",
		`"hunter2hunter2!"`: `"${LONG}!"`, "not correct": "not ${NEW}", "hunter": "hunter",
	} {
		if got := r.clean(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// loaded returns limits whose configuration is the text of the file: the names of its policies, or "bad".
func loaded(t *testing.T, text string) (l *Limits, path string, log *strings.Builder) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "weir.yaml"), &strings.Builder{}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(Options{
		Path: path, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Parse: func(f Files) (Parsed, error) {
			if name := f.File.Name; string(f.File.Data) == "bad" {
				return Parsed{}, errors.Join(errors.New(name+":1:1: first"), errors.New(name+":2:1: second"))
			}
			set := &policy.Set{}
			for p := range strings.FieldsSeq(string(f.File.Data)) {
				set.Policies = append(set.Policies, policy.Policy{
					Name: p, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(3), 0)}},
				})
			}
			return Parsed{Set: set, Warnings: []string{"careful"}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Engine().Close() })
	return l, path, log
}

// TestChecks: a check takes from the policy that it names, and a policy that a reload has removed allows nothing.
func TestChecks(t *testing.T) {
	l, path, log := loaded(t, "a b{c}%20")
	take := func(name, key string, cost int64) policy.Verdict {
		t.Helper()
		var v policy.Verdict
		l.Engine().Take(&policy.Request{Named: &policy.Named{Policy: []byte(name), Key: []byte(key), Cost: cost}}, &v)
		return v
	}
	for _, name := range []string{"a", "b{c}%20"} {
		if v := take(name, "x", 2); !v.Allowed || len(v.Parts) != 1 || v.Decision().Remaining != 1 || string(v.Parts[0].Key) != "x" {
			t.Errorf("%s: %+v", name, v)
		}
		if v := take(name, "x", 0); !v.Allowed || v.Decision().Remaining != 1 {
			t.Errorf("%s: a probe: %+v", name, v.Decision())
		}
		if v := take(name, "x", 2); v.Allowed || v.Decision().Reason != weir.ReasonLimited {
			t.Errorf("%s: %+v", name, v.Decision())
		}
	}
	if l.Has("c") || !l.Has("a") {
		t.Error("Has")
	}
	if err := os.WriteFile(path, []byte("a c"), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := l.Reload("test")
	if err != nil || !l.Has("c") || l.Has("b{c}%20") {
		t.Errorf("%d, %v", changes, err)
	}
	if v := take("a", "x", 2); v.Allowed {
		t.Error("the state is lost")
	}
	if v := take("b{c}%20", "y", 1); v.Allowed || !v.Unknown(0) {
		t.Errorf("of a policy that is gone: %+v", v.Decision())
	}
	status := fmt.Sprintf("%+v", l.Status())
	if strings.Contains(log.String()+status, "rules.") || !strings.Contains(log.String(), "policies.c") || !strings.Contains(log.String(), "careful") {
		t.Errorf("%s\n%s", log, status)
	}
}

func TestRefusedReload(t *testing.T) {
	l, path, log := loaded(t, "a")
	if err := l.reloadIfChanged(); !errors.Is(err, ErrUnchanged) {
		t.Errorf("unchanged: %v", err)
	}
	if err := os.WriteFile(path, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.reloadIfChanged(); err == nil || errors.Is(err, ErrUnchanged) {
		t.Errorf("bad: %v", err)
	}
	if err := l.reloadIfChanged(); !errors.Is(err, ErrUnchanged) {
		t.Errorf("still bad: %v", err)
	}
	s := l.Status()
	if s.Refused != 1 || s.Reloads != 0 || len(s.Mistakes) != 2 || s.LastError != path+":1:1: first" || s.LastCause != "file" || s.Version != 1 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(log.String(), path+":2:1: second") || !l.Has("a") {
		t.Error(log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.reloadIfChanged(); err == nil || errors.Is(err, ErrUnchanged) {
		t.Errorf("gone: %v", err)
	}
	if err := l.reloadIfChanged(); !errors.Is(err, ErrUnchanged) {
		t.Errorf("still gone: %v", err)
	}
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.reloadIfChanged(); err != nil {
		t.Errorf("back again: %v", err)
	}
	if s := l.Status(); s.Refused != 2 || s.Reloads != 1 || s.LastError != "" || len(s.Mistakes) > 0 {
		t.Errorf("%+v", s)
	}
}
