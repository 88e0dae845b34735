package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// searched is an engine with a policy for each way to make keys.
func searched(t *testing.T) *policy.Engine {
	t.Helper()
	net := func(v4, v6 int) policy.Text {
		text, err := policy.ClientNet(v4, v6)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	limits := []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}}
	lockout := &policy.Lockout{Refusals: 3, Within: time.Hour, For: time.Hour}
	apiKey := policy.HeaderText("X-Api-Key")
	set := &policy.Set{Policies: []policy.Policy{
		{Name: "ip", Limits: limits, Key: policy.ClientIP()},
		{Name: "net", Limits: limits, Key: net(24, 64)},
		{Name: "site", Limits: limits, Key: net(16, 48), Lockout: lockout},
		{Name: "key", Limits: limits, Key: apiKey},
		{Name: "both", Limits: limits, Key: policy.JoinText(policy.ClientIP(), policy.PathValueText("user"))},
		{Name: "words", Limits: limits, Key: policy.ConcatText(policy.ConstantText("ip:"), policy.ClientIP())},
		{Name: "user", Limits: limits, Key: policy.PathValueText("user")},
		{Name: "host", Limits: limits, Key: policy.HostText()},
		{Name: "all", Limits: limits},
		{Name: "idle", Limits: limits, Key: policy.ClientIP()},
	}}
	for _, p := range set.Policies[:len(set.Policies)-1] {
		set.Rules = append(set.Rules, policy.Rule{
			Name: p.Name, Match: policy.Match{Paths: []string{"/users/{user}"}}, Limits: []policy.Use{{Policy: p.Name}},
		})
	}
	e, err := policy.NewEngine(set, policy.EngineOptions{Clock: manualclock.New(0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// keysOf are the keys of a search of which something is kept.
func keysOf(t *testing.T, e *policy.Engine, word string) map[string]policy.FoundKey {
	t.Helper()
	s, err := e.Search(t.Context(), word)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]policy.FoundKey{}
	for _, k := range s.Keys {
		if k.Known() {
			found[k.Policy+" "+k.Key] = k
		}
	}
	return found
}

// TestSearchFindsEveryKeyOfAClient, however its policies count it, and of a value.
func TestSearchFindsEveryKeyOfAClient(t *testing.T) {
	long := strings.Repeat("k", 300)
	engines := map[string]*policy.Engine{}
	for _, client := range []string{"198.51.100.52", "2001:db8:1:2:3::4"} {
		e := searched(t)
		for range 6 {
			var v policy.Verdict
			e.Take(&policy.Request{
				Client: netip.MustParseAddr(client), Path: "/users/bob,x", Host: "Shop.example:443",
				Header: fields{"X-Api-Key": {long}},
			}, &v)
			v.Release()
		}
		engines[client] = e
	}
	for word, want := range map[string][]string{
		"198.51.100.52": {
			"ip 198.51.100.52", "net 198.51.100.0/24", "site 198.51.0.0/16", `both 198.51.100.52,bob\,x`, "words ip:198.51.100.52", "all ",
		},
		"198.51.100.52:4711": {
			"ip 198.51.100.52", "net 198.51.100.0/24", "site 198.51.0.0/16", `both 198.51.100.52,bob\,x`, "words ip:198.51.100.52", "all ",
		},
		"::ffff:198.51.100.52": {
			"ip 198.51.100.52", "net 198.51.100.0/24", "site 198.51.0.0/16", `both 198.51.100.52,bob\,x`, "words ip:198.51.100.52", "all ",
		},
		"2001:DB8:1:2:3:0:0:4": {
			"ip 2001:db8:1:2:3::4", "net 2001:db8:1:2::/64", "site 2001:db8:1::/48", `both 2001:db8:1:2:3::4,bob\,x`,
			"words ip:2001:db8:1:2:3::4", "all ",
		},
		"198.51.100.0/24":  {"ip 198.51.100.52", "net 198.51.100.0/24", `both 198.51.100.52,bob\,x`, "words ip:198.51.100.52", "all "},
		"bob,x":            {"user bob,x", `both 198.51.100.52,bob\,x`, "all "},
		"shop.EXAMPLE":     {"host shop.example", "all "},
		long:               {"key " + long[:60] + "...sha256:9cc7a7a3f3f5a4ba", "all "},
		"198.51.100.5":     {"net 198.51.100.0/24", "site 198.51.0.0/16", "all "},
		"2001:db8:1:2::99": {"net 2001:db8:1:2::/64", "site 2001:db8:1::/48", "all "},
		"carol":            {"all "},
	} {
		e := engines["198.51.100.52"]
		if strings.Contains(word, "2001:") {
			e = engines["2001:db8:1:2:3::4"]
		}
		found := keysOf(t, e, word)
		for _, name := range want {
			hit := false
			for got := range found {
				hit = hit || got == name || strings.Contains(name, "sha256") && strings.HasPrefix(got, name[:70])
			}
			if !hit {
				t.Errorf("%.40s: %.80q is not found, but %.200v", word, name, keysIn(found))
			}
		}
		if len(found) != len(want) {
			t.Errorf("%.40s: found %.300v, want %.300v", word, keysIn(found), want)
		}
		for name, k := range found {
			if k.Limits[0].Decision.Allowed {
				t.Errorf("%s: %s is told to be allowed", word, name)
			}
		}
	}
	if k := keysOf(t, engines["198.51.100.52"], "198.51.7.7")["site 198.51.0.0/16"]; k.LockedFor != time.Hour {
		t.Errorf("the lockout of its network is told as %v", k.LockedFor)
	}
}

func keysIn(found map[string]policy.FoundKey) (all []string) {
	for name := range found {
		all = append(all, name)
	}
	return all
}

// fields are a header.
type fields map[string][]string

func (f fields) Values(name string) []string { return f[name] }

// TestSearchSaysWhatItDoesNotKnow: a policy whose keys a word does not tell is named, with the reason.
func TestSearchSaysWhatItDoesNotKnow(t *testing.T) {
	e := searched(t)
	for word, want := range map[string]string{
		"192.0.2.1":    "key user host both",
		"192.0.2.0/24": "ip net site key both words user host idle",
		"bob":          "ip net site both words idle",
	} {
		s, err := e.Search(t.Context(), word)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]string{}
		for _, u := range s.Unsearched {
			told[u.Policy] = u.Why
		}
		names := strings.Fields(want)
		for _, name := range names {
			if told[name] == "" {
				t.Errorf("%s: nothing is said of policy %s", word, name)
			}
		}
		if len(told) != len(names) || s.Policies != 10 {
			t.Errorf("%s: %d policies, not searched %v", word, s.Policies, told)
		}
	}
	for _, word := range []string{"", strings.Repeat("w", 8193)} {
		if _, err := e.Search(t.Context(), word); err == nil {
			t.Errorf("a word of %d bytes is searched", len(word))
		} else if _, ok := errors.AsType[*weir.OptionError](err); !ok {
			t.Error(err)
		}
	}
}

// TestSearchOfNamedKeys: of keys that callers name it is said that those with the word as a part may not be known.
func TestSearchOfNamedKeys(t *testing.T) {
	e, err := policy.NewEngine(&policy.Set{Policies: []policy.Policy{{
		Name: "named", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 0)}}, Key: policy.NamedKey(),
	}}}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for _, key := range []string{"bob", "edge|remote=192.0.2.1|user=bob"} {
		for range 2 {
			var v policy.Verdict
			e.Take(&policy.Request{Named: &policy.Named{Policy: []byte("named"), Key: []byte(key), Cost: 1}}, &v)
			v.Release()
		}
	}
	for word, want := range map[string]int{"bob": 2, "192.0.2.1": 1, "carol": 0} {
		s, err := e.Search(t.Context(), word)
		if err != nil || len(s.Keys) != want || len(s.Unsearched) != 1 {
			t.Errorf("%s: %v %+v", word, err, s)
		}
	}
}

// TestSearchIsBounded where thousands of keys have the word as a part.
func TestSearchIsBounded(t *testing.T) {
	e, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name: "both", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}},
			Key: policy.JoinText(policy.ClientIP(), policy.PathText()),
		}},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "both"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for i := range 600 {
		for range 3 {
			var v policy.Verdict
			e.Take(&policy.Request{Client: netip.MustParseAddr("192.0.2.1"), Path: fmt.Sprintf("/users/user-%d", i)}, &v)
			v.Release()
		}
	}
	s, err := e.Search(t.Context(), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Keys) != 256 || s.More == 0 {
		t.Errorf("%d keys, and %d more", len(s.Keys), s.More)
	}
}

// TestSearchAsksAStoreThatFailsOnce, and says of its policies that their state is not known.
func TestSearchAsksAStoreThatFailsOnce(t *testing.T) {
	down := &downStore{}
	limits := []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}}
	set := &policy.Set{Policies: []policy.Policy{
		{Name: "a", Limits: limits, Key: policy.ClientIP(), Consistency: policy.ConsistencyCoherent},
		{Name: "b", Limits: limits, Key: policy.ClientIP(), Consistency: policy.ConsistencyCoherent},
		{Name: "c", Limits: limits, Key: policy.ClientIP()},
	}}
	e, err := policy.NewEngine(set, policy.EngineOptions{Store: down})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	s, err := e.Search(t.Context(), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if down.asked != 1 || len(s.Unsearched) != 2 || !strings.Contains(s.Unsearched[0].Why, "it is down") {
		t.Errorf("asked %d times: %+v", down.asked, s.Unsearched)
	}
	for _, k := range s.Keys {
		if (k.Err == nil) != (k.Policy == "c") || k.Known() != (k.Policy != "c") {
			t.Errorf("%+v", k)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := e.Search(ctx, "192.0.2.1"); err != nil || down.asked != 1 || len(s.Unsearched) != 2 {
		t.Errorf("after its end: %v, asked %d times: %+v", err, down.asked, s.Unsearched)
	}
}

// downStore is one that cannot be reached.
type downStore struct {
	store.Home

	asked int
}

func (s *downStore) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.States == nil {
		return s.Home.Do(ctx, ask, charges, decisions)
	}
	s.asked++
	return store.Hold{}, errors.New("weir: it is down")
}

// Close implements [store.Home].
func (s *downStore) Close() error { return nil }
