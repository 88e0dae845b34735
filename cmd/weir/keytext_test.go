package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestKeysAsBytes: a key that is no text, as RESP takes it, is shown by weir admin in a spelling by which it can be let in again.
func TestKeysAsBytes(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, "version: 1\npolicies:\n  login: {limit: 1/day, key: client.ip, lockout: {refusals: 2, within: 1h, for: 1h}}\n")
	s := attack(t, "--config", config, "--admin-rate", "1000000/s")
	const key, other = "caf\xe9", `caf\xe9`
	client := s.redis()
	take := func(key string) string {
		t.Helper()
		got, err := client.Do(t.Context(), "WEIR.TAKE", "login", key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	for _, one := range []string{key, other} {
		for range 4 {
			take(one)
		}
	}
	ask := func(want string, args ...string) {
		t.Helper()
		args = append(append([]string{"admin"}, args...), "--server", "http://"+s.address)
		if got := weir(t, nil, args...); got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%q: %d %s%s, want %q", args, got.status, got.stdout, got.stderr, want)
		}
	}
	spelled := operator.SpellKey(key)
	ask(spelled, "lockouts")
	ask(operator.SpellKey(other), "lockouts")
	ask(`key "`+spelled+`"`, "key", "--policy", "login", "--key", spelled)
	ask(spelled, "refusals", "--policy", "login", "--key", key)
	ask(spelled+" of login is let in again", "unlock", "--policy", "login", "--key", spelled, "--reason", "it was us")
	ask(spelled+" of login was not locked out", "unlock", "--policy", "login", "--key", key, "--reason", "the same key, as it is")
	ask(spelled+" of login has all", "reset", "--policy", "login", "--key", spelled, "--reason", "it was us")
	ask(spelled, "audit")
	if got := take(key); !strings.Contains(got, "allowed:true") {
		t.Errorf("it is refused still: %s", got)
	}
	if got := take(other); !strings.Contains(got, "hard-lockout") {
		t.Errorf("the other one: %s", got)
	}
	s.end()
}
