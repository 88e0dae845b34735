package live

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// rated makes a policy of a file, whose rate is its length, and whose secret is in its name.
func rated(f Files) (Parsed, error) {
	text := string(f.File.Data)
	if strings.Contains(text, "wrong") {
		return Parsed{}, errors.Join(errors.New("hush-hush is wrong"), errors.New("so is this"))
	}
	return Parsed{
		Set: &policy.Set{Policies: []policy.Policy{{
			Name: "a", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(int64(len(text))), 0), Name: "all"}},
			Key: policy.ConstantText("hush-hush"),
		}}},
		Secrets: map[string]string{"SECRET": "hush-hush"},
	}, nil
}

// TestHistory: the last reloads are kept, with what has changed and without secrets.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("x")
	var told []Reload
	l, err := Load(Options{
		Path: path, Parse: rated, Logger: slog.New(slog.DiscardHandler), Reloaded: func(r *Reload) { told = append(told, *r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Engine().Close()
	if l.History() != nil || l.Text() != "x" {
		t.Errorf("%+v %q", l.History(), l.Text())
	}
	write("xx")
	if _, err := l.Reload("API"); err != nil {
		t.Fatal(err)
	}
	write("wrong")
	if _, err := l.Reload("SIGHUP"); err == nil {
		t.Fatal("a wrong file was taken")
	}
	got := l.History()
	if len(got) != 2 || len(told) != 2 || l.Text() != "xx" {
		t.Fatalf("%+v %+v", got, told)
	}
	if r := got[1]; r.Cause != "API" || r.Version != 2 || r.Count == 0 || !slices.ContainsFunc(r.Changes, func(c string) bool {
		return strings.HasPrefix(c, "policies.a.limits.all: 1/h, burst 1 -> 2/h, burst 2 (kept)")
	}) {
		t.Errorf("%+v", r)
	}
	if r := got[0]; r.Cause != "SIGHUP" || r.Version != 2 || fmt.Sprint(r.Mistakes) != "[${SECRET} is wrong so is this]" {
		t.Errorf("%+v", r)
	}
	for range 2 * mostHistory {
		_, _ = l.Reload("API")
	}
	if got := l.History(); len(got) != mostHistory {
		t.Errorf("%d reloads are kept", len(got))
	}
	write(strings.Repeat("x", mostText+1))
	if _, err := l.Reload("API"); err != nil || l.Text() != "" {
		t.Errorf("%v, %d bytes", err, len(l.Text()))
	}
}

// TestTextWithoutSecrets: passwords are not told, nor is what came from the environment.
func TestTextWithoutSecrets(t *testing.T) {
	l := new(Limits)
	l.secrets.Store(newRedactor(map[string]string{"SECRET": "hush-hush"}, nil))
	for text, want := range map[string]string{
		"store: redis://u:p4ss@host:6379/1":                  "store: redis://u:(hidden)@host:6379/1",
		"store: rediss://:p4ss@host":                         "store: rediss://:(hidden)@host",
		"store: redis://:${REDIS_PASSWORD}@host":             "store: redis://:${REDIS_PASSWORD}@host",
		"store: redis://host:6379":                           "store: redis://host:6379",
		"  password: p4ss # not this\n  user: x":             "  password: (hidden)\n  user: x",
		"  sentinel_password: \"p4 ss\"\n  x: 1":             "  sentinel_password: (hidden)\n  x: 1",
		"  password: ${REDIS_PASSWORD}":                      "  password: ${REDIS_PASSWORD}",
		"store: {url: redis://h, password: p4ss, user: x}":   "store: {url: redis://h, password: (hidden), user: x}",
		"store: {\"password\": \"p4,ss\", user: x}":          "store: {\"password\": (hidden), user: x}",
		"store: {password: '${REDIS_PASSWORD}', user: hush}": "store: {password: '${REDIS_PASSWORD}', user: hush}",
		"store: redis://u:p@4'ss@host:6379/1":                "store: redis://u:(hidden)@host:6379/1",
		"store: redis://p4ss@host":                           "store: redis://(hidden)@host",
		"store: redis://u:${X:-p4ss}@host":                   "store: redis://u:(hidden)@host",
		"  password: ${X:-p4ss}":                             "  password: (hidden)",
		"x: 1\n  # password: p4ss":                           "x: 1\n  # password: (hidden)",
		"policies:\n  password:\n    rate: 1/s":              "policies:\n  password:\n    rate: 1/s",
		"name: hush-hush":                                    "name: ${SECRET}",
		"match: {path: \"/password: x\"}":                    "match: {path: \"/password: x\"}",
	} {
		files := Files{File: &File{Data: []byte(text)}}
		l.keep(&files)
		if got := l.Text(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTextIsWithheld: a file that has a password in a form that cannot be taken out is not shown.
func TestTextIsWithheld(t *testing.T) {
	for _, text := range []string{
		"store:\n  password: |\n    p4ss\n  url: x\n",
		"store:\n  password: >-\n    p4ss\n",
		"store:\n  password:\n    p4ss\n",
		"store:\n  password: a\n    p4ss\n",
		"store: {\n  \"password\":\"p4ss\",\n}\n",
		"store: {password: \"a\\\"p4ss\"}\n",
		"store: {password: 'it''s p4ss'}\n",
		"x: &p p4ss\nstore:\n  password: *p\n",
		"store:\n  ? password\n  : p4ss\n",
		"store:\n  !!str password: p4ss\n",
		"store:\n  \"\\x70assword\": p4ss\n",
		"store: \"redis://u:p4\\\n  ss@host\"\n",
		"a: 1\n---\nstore:\n  password: >-\n    p4ss\n",
		"store: {user: \"{password: \", password: \"p4ss\"}\n",
	} {
		l := new(Limits)
		l.secrets.Store(newRedactor(nil, nil))
		files := Files{File: &File{Data: []byte(text)}, More: []File{{Name: "more.yaml", Data: []byte("domain: a\n")}}}
		l.keep(&files)
		if got := l.Text(); strings.Contains(got, "ss") && got != "# \n"+withheld+"# more.yaml\ndomain: a\n" {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestRefusedSecrets: why the engine has refused a set is told without the secrets of that set.
func TestRefusedSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := "the-first"
	l, err := Load(Options{Path: path, Logger: slog.New(slog.DiscardHandler), Parse: func(Files) (Parsed, error) {
		one := policy.Policy{Name: secret, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 0)}}}
		set := &policy.Set{Policies: []policy.Policy{one}}
		if secret == "the-other" {
			set.Policies = append(set.Policies, one)
		}
		return Parsed{Set: set, Secrets: map[string]string{"SECRET": secret}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Engine().Close()
	secret = "the-other"
	if _, err := l.Reload("API"); err == nil {
		t.Fatal("a set with two policies of one name was taken")
	}
	if got := fmt.Sprint(l.History()[0].Mistakes, l.Status().LastError); strings.Contains(got, secret) {
		t.Error(got)
	}
}
