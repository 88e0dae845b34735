package adminapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
)

// counted has policies that count one client in several ways.
const counted = `version: 1
policies:
  nets: {limit: 2/h, key: client.net, lockout: {refusals: 2, within: 1m, for: 15m}}
  keys: {limit: 3/h, key: 'request.headers["x-api-key"].lowerAscii()'}
  users: {limit: 1/h, key: [client.ip, path.user]}
  odd: {limit: 5/h, key: 'client.ip.startsWith("10.") ? "own" : request.headers["x-api-key"]'}
  idle: {limit: 5/h, key: client.ip}
rules:
  - {name: users, match: {path: '/users/{user}'}, limits: users, final: true}
  - {name: keys, match: {path: /keys}, limits: keys, final: true}
  - {name: odd, match: {path: /odd}, limits: odd, final: true}
  - {name: idle, match: {path: /idle}, limits: idle, final: true}
  - {name: nets, limits: nets}
`

func (s *server) search(word string) (found operator.Search) {
	s.t.Helper()
	s.ask("GET", operator.SearchPath+"?word="+url.QueryEscape(word), "", 200, &found)
	return found
}

// known are the keys of a search of which something is kept, as policy and key.
func known(s *operator.Search) (all []string) {
	for i := range s.Keys {
		if s.Keys[i].Known() {
			all = append(all, s.Keys[i].Policy+" "+s.Keys[i].Key.Key)
		}
	}
	slices.Sort(all)
	return all
}

// TestSearchOfARefusedClientIsNoAllClear: the client is refused under its network, and by a key that its address does not tell.
func TestSearchOfARefusedClientIsNoAllClear(t *testing.T) {
	s := newServer(t, counted)
	client := address("198.51.100.52")
	s.send(6, policy.Request{Method: "GET", Path: "/", Client: client})
	s.send(5, policy.Request{Method: "GET", Path: "/keys", Client: client, Header: http.Header{"X-Api-Key": {"ACME"}}})
	s.send(2, policy.Request{Method: "GET", Path: "/users/bob", Client: client})

	found := s.search("198.51.100.52")
	if got, want := strings.Join(known(&found), "; "), "keys acme; nets 198.51.100.0/24; users 198.51.100.52,bob"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	for i, want := range []string{"nets", "users", "keys"} {
		if !slices.ContainsFunc(found.Keys[:3], func(k operator.FoundKey) bool { return k.Policy == want && k.Refuses() }) {
			t.Errorf("the key of %s is not told first, and to be refused: %+v", want, found.Keys[i])
		}
	}
	if len(found.Refusals.Refusals) != 4+2+1 || found.Address != "198.51.100.52" || found.Policies != 5 || found.Others {
		t.Errorf("%d refusals of %s, %d policies, others: %v", len(found.Refusals.Refusals), found.Address, found.Policies, found.Others)
	}
	for _, k := range found.Keys {
		if k.Known() == (k.Policy == "idle") || k.Mode != "enforce" || k.Kept != "local" {
			t.Errorf("%+v", k)
		}
	}
	unsearched := map[string]string{}
	for _, u := range found.Unsearched {
		unsearched[u.Policy] = u.Why
	}
	if len(unsearched) != 3 || unsearched["keys"] == "" || unsearched["users"] == "" || unsearched["odd"] == "" {
		t.Errorf("not searched: %v", unsearched)
	}

	for word, want := range map[string]string{"acme": "keys acme", "Acme": "keys acme", "bob": "users 198.51.100.52,bob"} {
		found := s.search(word)
		if got := strings.Join(known(&found), "; "); got != want {
			t.Errorf("%s: found %s, want %s", word, got, want)
		}
	}
	if found := s.search("203.0.113.1"); len(known(&found)) != 0 || len(found.Refusals.Refusals) != 0 || len(found.Unsearched) != 3 {
		t.Errorf("of a client that was never seen: %+v", found)
	}
}

// TestSearchesAreBounded: what is no word, or too long, is refused.
func TestSearchesAreBounded(t *testing.T) {
	s := newServer(t, counted)
	for _, query := range []string{"", "?word=", "?word=%20", "?word=" + strings.Repeat("a", 8193), "?word=a&word=b", "?word=a&n=0", "?word=a&n=4097", "?key=a"} {
		s.ask("GET", operator.SearchPath+query, "", 400, nil)
	}
	s.search(strings.Repeat("a", 8192))
	s.search(strings.Repeat("a,", 4096))
}
