package ratelimitconfig_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// parse reads files that have no mistake.
func parse(t testing.TB, o ratelimitconfig.Options, texts ...string) *ratelimitconfig.Config {
	t.Helper()
	c, err := ratelimitconfig.Parse(files(texts...), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files are a.yaml, b.yaml and so on.
func files(texts ...string) []ratelimitconfig.File {
	var all []ratelimitconfig.File
	for i, text := range texts {
		all = append(all, ratelimitconfig.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
	}
	return all
}

// entries reads "key=value key=value".
func entries(text string) []ratelimitconfig.Entry {
	var all []ratelimitconfig.Entry
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		all = append(all, ratelimitconfig.Entry{Key: key, Value: value})
	}
	return all
}

// server decides as the front does.
type server struct {
	*ratelimitconfig.Config

	limits *live.Limits
}

func serve(t testing.TB, c *ratelimitconfig.Config) *server {
	t.Helper()
	shared, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := live.Fixed(&policy.Set{Policies: c.Policies}, policy.EngineOptions{Store: shared}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = limits.Engine().Close()
		_ = shared.Close()
	})
	return &server{c, limits}
}

// take decides on one descriptor. It is true as well if no limit holds.
func (s *server) take(t testing.TB, domain, descriptor string, hits uint64, o ratelimitconfig.Override) (allowed bool, d weir.Decision) {
	t.Helper()
	var m ratelimitconfig.Match
	s.Match(&m, domain, entries(descriptor), o, hits)
	if m.Outcome != ratelimitconfig.Limited {
		return true, d
	}
	var (
		r policy.Request
		v policy.Verdict
	)
	r = policy.Request{Named: &policy.Named{Policy: m.Limit.PolicyBytes, Key: m.Key, Cost: m.Cost}, Context: t.Context()}
	if m.Overrides {
		r.Named.Limit = m.Brought
	}
	s.limits.Engine().Take(&r, &v)
	v.Release()
	return v.Allowed, v.Decision()
}

// admits counts how many of so many descriptors are allowed.
func (s *server) admits(t testing.TB, domain, descriptor string, of int) (n int) {
	t.Helper()
	for range of {
		if ok, _ := s.take(t, domain, descriptor, 1, ratelimitconfig.Override{}); ok {
			n++
		}
	}
	return n
}
