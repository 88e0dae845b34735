package adminapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestLongKeysAreFound: a key that is counted under its hash is looked at, overridden, reset and unlocked by its text, and its
// refusals are found by it.
func TestLongKeysAreFound(t *testing.T) {
	s := newServer(t, strings.Replace(configured, "{rate: 5/s, burst: 10, name: short}", "{rate: 1/h, burst: 2, name: short}", 1))
	key := strings.Repeat("k", 200)
	s.check(4, "login", key) // which locks it out
	query := url.Values{"policy": {"login"}, "key": {key}}.Encode()
	var k operator.Key
	s.ask("GET", operator.KeyPath+"?"+query, "", 200, &k)
	if k.LockedFor <= 0 || !k.Limits[0].Tracked || k.Limits[0].Remaining != 0 {
		t.Errorf("%+v", k)
	}
	var last operator.Refusals
	for _, q := range []string{query, url.Values{"key": {key}}.Encode()} {
		if s.ask("GET", operator.RefusalsPath+"?"+q, "", 200, &last); len(last.Refusals) == 0 {
			t.Errorf("%s: its refusals are not found", q)
		}
	}
	if found := s.search(key); len(found.Keys) == 0 {
		t.Errorf("the key is not found: %+v", found)
	}
	body := func(more string) string {
		return fmt.Sprintf(`{"policy":"login","key":%q,"reason":"why"%s}`, key, more)
	}
	for _, step := range []struct {
		path, body string
		again      bool
	}{
		{operator.UnlockPath, body(""), false},
		{operator.OverridePath, body(`,"unlimited":true,"for":60`), true},
		{operator.RestorePath, body(""), false},
		{operator.ResetPath, body(""), true},
	} {
		for _, want := range []bool{true, step.again} {
			var c operator.Changed
			if s.ask("POST", step.path, step.body, 200, &c); c.Changed != want {
				t.Errorf("%s: %+v, want %v", step.path, c, want)
			}
		}
	}
	k = operator.Key{}
	s.ask("GET", operator.KeyPath+"?"+query, "", 200, &k)
	if k.LockedFor != 0 || k.Override != nil || k.Limits[0].Remaining != k.Limits[0].Limit {
		t.Errorf("%+v", k)
	}
}
