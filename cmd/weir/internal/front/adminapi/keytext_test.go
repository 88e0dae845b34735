package adminapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
)

// check asks for a permit of a policy for a key of any bytes, n times.
func (s *server) check(n int, name, key string) (v policy.Verdict) {
	s.t.Helper()
	var r policy.Request
	for range n {
		r = policy.Request{Named: &policy.Named{Policy: []byte(name), Key: []byte(key), Cost: 1}, Context: s.t.Context()}
		s.limits.Engine().Take(&r, &v)
		v.Release()
	}
	return v
}

// TestKeysOfAnyBytes: a key that is not UTF-8 is told everywhere in the same spelling, and what is told names exactly that key, and
// neither one that looks like it nor one that is spelled like it.
func TestKeysOfAnyBytes(t *testing.T) {
	for key, spelled := range map[string]string{
		"caf\xe9":         `caf\xe9`,
		`caf\xe9`:         `caf\\xe9`,
		"\xff\x00\"\\ \n": `\xff\x00"\\ \x0a`,
	} {
		s := newServer(t, strings.Replace(configured, "{rate: 5/s, burst: 10, name: short}", "{rate: 1/h, burst: 2, name: short}", 1))
		others := []string{"caf\ufffd", "caf", "café", "caf\xe8", `caf\\\xe9`}
		for _, other := range others {
			s.check(4, "login", other)
		}
		s.check(4, "login", key) // which shuts it out
		s.check(3, "api", key)
		name := url.Values{"policy": {"login"}, "key": {spelled}}.Encode()
		body := func(more string) string {
			text, err := json.Marshal(spelled)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf(`{"policy":"login","key":%s,"reason":"why"%s}`, text, more)
		}
		told := func(what, got string) {
			t.Helper()
			if got != spelled {
				t.Errorf("%s has %q, want %q", what, got, spelled)
			}
		}
		var k operator.Key
		for _, query := range []string{name, url.Values{"policy": {"login"}, "key": {key}}.Encode()} {
			if query != name && key == `caf\xe9` {
				continue // which is how another key is spelled
			}
			s.ask("GET", operator.KeyPath+"?"+query, "", 200, &k)
			if told("the state", k.Key); k.LockedFor == 0 {
				t.Errorf("%q: %+v", query, k)
			}
		}
		var top []operator.Key
		s.ask("GET", operator.KeysPath+"?policy=login", "", 200, &top)
		if !slices.ContainsFunc(top, func(k operator.Key) bool { return k.Key == spelled }) {
			t.Errorf("the keys under pressure: %+v", top)
		}
		var lockouts []operator.Lockout
		s.ask("GET", operator.LockoutsPath+"?policy=login", "", 200, &lockouts)
		if len(lockouts) != 1+len(others) || !slices.ContainsFunc(lockouts, func(l operator.Lockout) bool { return l.Key == spelled }) {
			t.Errorf("the lockouts: %+v", lockouts)
		}
		var refusals operator.Refusals
		s.ask("GET", operator.RefusalsPath+"?"+name, "", 200, &refusals)
		if len(refusals.Refusals) != 2 {
			t.Fatalf("%d refusals", len(refusals.Refusals))
		}
		told("a refusal", refusals.Refusals[0].Limits[0].Key)
		var overview operator.Overview
		s.ask("GET", operator.OverviewPath, "", 200, &overview)
		for _, p := range overview.Policies {
			if p.Difference != nil && len(p.Difference.AdmittedKeys) > 0 {
				told("a difference", p.Difference.AdmittedKeys[0].Key)
			}
		}
		var changed operator.Changed
		for _, c := range []struct{ path, body string }{
			{operator.UnlockPath, body("")},
			{operator.OverridePath, body(`,"unlimited":true,"for":60`)},
			{operator.RestorePath, body("")},
			{operator.ResetPath, body("")},
		} {
			changed.Changed = false
			if s.ask("POST", c.path, c.body, 200, &changed); !changed.Changed {
				t.Errorf("%s %s changes nothing", c.path, c.body)
			}
			if c.path == operator.OverridePath {
				var overrides []operator.Override
				s.ask("GET", operator.OverridesPath, "", 200, &overrides)
				told("an override", overrides[0].Key)
			}
			var audit []operator.AuditEntry
			s.ask("GET", operator.AuditPath, "", 200, &audit)
			told("the audit log", audit[0].Key)
		}
		if v := s.check(1, "login", key); !v.Allowed {
			t.Errorf("%q is refused still", key)
		}
		s.ask("GET", operator.LockoutsPath+"?policy=login", "", 200, &lockouts)
		if len(lockouts) != len(others) {
			t.Errorf("the lockouts of others: %+v", lockouts)
		}
	}
}

// TestKeysThatCannotBeRead: what would be read as another key than was meant is refused, and says how to spell it.
func TestKeysThatCannotBeRead(t *testing.T) {
	s := newServer(t, configured)
	for _, key := range []string{"caf\xe9", `caf\ud800`, `caf\udc00\ud800`, `\ud800\u0041`, `\uD83D`} {
		for path, more := range map[string]string{
			operator.UnlockPath: "", operator.ResetPath: "", operator.RestorePath: "", operator.OverridePath: `,"unlimited":true,"for":60`,
		} {
			w := s.ask("POST", path, `{"policy":"login","key":"`+key+`"`+more+`}`, 400, nil)
			if !strings.Contains(w.Body.String(), "must be UTF-8") {
				t.Errorf("%q: %s", key, w.Body)
			}
		}
	}
	for _, key := range []string{`\ud83d\ude00`, `\\ud800`, `\ufffd`, `\u00e9`, `\"`} {
		s.ask("POST", operator.UnlockPath, `{"policy":"login","key":"`+key+`"}`, 200, nil)
	}
	long := strings.Repeat("\xff", 1024)
	s.ask("GET", operator.KeyPath+"?"+url.Values{"policy": {"login"}, "key": {operator.SpellKey(long)}}.Encode(), "", 200, nil)
	s.ask("GET", operator.KeyPath+"?"+url.Values{"policy": {"login"}, "key": {operator.SpellKey(long + "\xff")}}.Encode(), "", 400, nil)
}
