package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/config"
)

const sharedPolicy = "\npolicies:\n  p: {limit: 1/s, consistency: coherent}\nrules: [{name: r, limits: p}]\n"

func TestStore(t *testing.T) {
	f, err := config.Load("testdata/whole.yaml", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := f.Store
	if s.URL != "redis://u:hunter2@10.0.0.1:6379/3?addr=10.0.0.2:6379" || s.Username != "limiter" || s.Password != "hunter3" ||
		s.SentinelUsername != "watcher" || s.SentinelPassword != "hunter4" || s.Database != 4 || s.Prefix != "shop:" || s.Connections != 4 || s.Replicas != 3 ||
		s.Timeout != 50*time.Millisecond || s.MaxInFlight != 2000 || s.Leased.Term != 500*time.Millisecond || s.Leased.MaxKeys != 100_000 ||
		s.Optimistic.Interval != 200*time.Millisecond || s.Optimistic.Drift != 5 || s.Optimistic.MaxKeys != 100_000 ||
		s.Source != "testdata/whole.yaml:6:1" {
		t.Errorf("%s at %s", s, s.Source)
	}
	f, err = config.Parse("f", []byte("version: 1\nstore: {addresses: ['a:1', \"${B}:2\"], master: m, tls: true}"+sharedPolicy), config.Options{
		Env: func(string) (string, bool) { return "xyzzy", true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Store; fmt.Sprint(s.Addresses) != "[a:1 xyzzy:2]" || s.Master != "m" || !s.TLS || s.URL != "" || s.String() != "a:1, ${B}:2" {
		t.Errorf("%v as %s", s.Addresses, s)
	}
	f, err = config.Parse("f", []byte("version: 1"+sharedPolicy), config.Options{HasStore: true})
	if err != nil || f.Store != nil {
		t.Errorf("%v", err)
	}
	f, err = config.Parse("f", []byte("version: 1\nstore: redis://h\npolicies: {p: {limit: 1/s}}\n"), config.Options{})
	if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].String(), "f:2:1: store: ") {
		t.Errorf("%v, %v", err, f.Warnings)
	}
}

// TestPasswordsAreNeverShown: neither one that the environment has, nor one that stands in the file, whatever else is wrong.
func TestPasswordsAreNeverShown(t *testing.T) {
	env := func(name string) (string, bool) { return "hunter2", name == "PASS" }
	tried := 0
	for _, store := range []string{
		"redis://u:hunter2@h", "'redis://u:${PASS}@h'", "redis://hunter2@h", "redis://u:hunter2@h/x", "redis://:hunter2@h", "redis://u:hun@hunter2@h",
		"u:hunter2@h:6379", "'redis://u:hunter2@h:${NO}'", "'redis://u:hunter2${PASS}@h'", "http://u:hunter2@h", "redis://u:hunter2@", "redis://u:hunter2@h:x",
		"'redis://u:hunter2@h?addr='", "'redis://u:hunter2@h%zz'", "'redis://h?password=hunter2'", "'redis://u:hunter2@h/0/1'", "'redis://u:hunter2/@h'",
		"{url: redis://h, password: hunter2}", "{url: redis://h, password: '${PASS}'}", "{url: redis://h, password: 'hunter2${NO}'}",
		"{url: redis://u:hunter2@h, host: x}", "{url: redis://u:hunter2@h, timeout: 5}", "{url: redis://h, password: [hunter2]}",
		"{url: redis://h, password: {a: hunter2}}", "{addresses: [u:hunter2@h:1]}", "{addresses: [hunter2@h]}", "{addresses: 'h:1', sentinel_password: hunter2}",
	} {
		f, err := config.Parse("f", []byte("version: 1\nstore: "+store+sharedPolicy), config.Options{Env: env})
		tried++
		var told strings.Builder
		if err != nil {
			told.WriteString(err.Error())
		} else {
			f.Explain(&told)
			fmt.Fprintf(&told, "%v %+v %#v %s %v", f.Store, f.Store, f.Store, f.Store, f.Warnings)
		}
		if strings.Contains(told.String(), "hunter2") {
			t.Errorf("%s shows the password:\n%s", store, told.String())
		}
	}
	if tried < 20 {
		t.Errorf("only %d", tried)
	}
	f, err := config.Load("testdata/whole.yaml", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	f.Explain(&told)
	if strings.Contains(told.String(), "hunter") {
		t.Error(told.String())
	}
}

func TestParseStore(t *testing.T) {
	s, err := config.ParseStore("redis://u:hunter2@h:1/2")
	if err != nil || s.URL != "redis://u:hunter2@h:1/2" || s.String() != "redis://u:xxxxx@h:1/2" {
		t.Errorf("%v, %v", s, err)
	}
	for text, want := range map[string]string{
		"h:6379":                 `weir: store "h:6379": must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write redis://h:6379`,
		"postgres://u:hunter2@h": `weir: store "postgres://u:xxxxx@h": must be a URL such as`,
	} {
		_, err := config.ParseStore(text)
		if e, ok := errors.AsType[*config.StoreError](err); !ok || !strings.HasPrefix(e.Error(), want) || strings.Contains(e.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSameStore(t *testing.T) {
	parse := func(store string) *config.Store {
		t.Helper()
		f, err := config.Parse("f", []byte("version: 1\n"+store+sharedPolicy), config.Options{HasStore: true})
		if err != nil {
			t.Fatal(err)
		}
		return f.Store
	}
	base := parse("store: {url: redis://h, password: a, prefix: p, timeout: 1s, leased: {term: 1s}}")
	if !base.Same(parse("\n\nstore: {leased: {term: 1s}, timeout: 1s, url: redis://h, prefix: p, password: a}")) {
		t.Error("the order of keys makes another store")
	}
	for _, other := range []string{
		"x-a: 1", "store: redis://h", "store: {url: redis://h, password: b, prefix: p, timeout: 1s, leased: {term: 1s}}",
		"store: {url: redis://h, password: a, prefix: p, timeout: 1s, leased: {term: 2s}}", "store: {addresses: h:6379}",
	} {
		if base.Same(parse(other)) {
			t.Errorf("the same as %s", other)
		}
	}
	if none := parse("x-a: 1"); !none.Same(nil) || none.Same(base) {
		t.Error("no store")
	}
	flag, err := config.ParseStore("redis://i/4")
	if err != nil {
		t.Fatal(err)
	}
	if at := base.At(flag); at.URL != "redis://i/4" || at.Password != "" || at.Prefix != "p" || at.Leased.Term != time.Second || at.String() != "redis://i/4" {
		t.Errorf("%+v", at)
	}
	if at := parse("x-a: 1").At(flag); !at.Same(flag) {
		t.Errorf("%+v", at)
	}
}
