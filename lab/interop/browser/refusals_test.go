package browser_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestRefusalInThreeClicks goes from the start page to the rule, the key and the numbers of a refusal.
func TestRefusalInThreeClicks(t *testing.T) {
	s := serve(t, shop)
	id := visits(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.click(`nav a[data-view=refusals]`) // one
	p.untilShows("h1", "Refusals")
	p.untilShows("tbody", "203.0.113.9")
	p.click(`tbody a.row`) // two
	p.untilShows("h1", id)
	p.numbers()
	p.check("refusal")
	p.press("weir.yaml:21:5") // three: the line of the rule
	p.until(`document.querySelector(".source .wanted")?.innerText.includes("name: login")`)

	// What is asked again has the same answer, and takes nothing.
	p.visit("#/refusals?id="+id, "Refusal "+id)
	p.press("Explain now")
	p.untilShows("h1", "Explain")
	p.untilShows(".content", "Refused by login/1h, key 203.0.113.9: locked out")
	p.untilShows(".content", "does not match")
	p.check("explanation")
	p.enter("Client", "203.0.113.200")
	p.click("main button[type=submit]")
	p.untilShows(".content", "Allowed, bound by login/1h.")
	p.enter("Client", "nobody")
	p.allow("400 (Bad Request)")
	p.click("main button[type=submit]")
	p.untilShows("[role=alert]", "must be an address")
	p.check("explanation with a mistake")
}

// numbers looks at the numbers of the last refusal of visits.
func (p *tab) numbers() {
	p.t.Helper()
	for _, part := range []string{
		"Refused by login/1h: locked out", "0 of 5 permits remained, and it cost 1", "It can be allowed after 1",
		"203.0.113.9", "weir.yaml:21:5", "POST", "shop.example", "/login",
	} {
		p.untilShows("main", part)
	}
}

// TestSearch types the ID of a refusal, and then a key.
func TestSearch(t *testing.T) {
	s := serve(t, shop)
	id := visits(s)
	p := open(t, s.address, 1280, "light")
	p.allow("404 (Not Found)") // a key is looked for as a refusal first
	p.live()
	p.enter("Search a client, a key, or the ID of a refusal", id)
	p.keys("\r")
	p.untilShows("h1", id)
	p.numbers()
	p.enter("Search a client, a key, or the ID of a refusal", "198.51.100.7")
	p.keys("\r")
	p.untilShows("h1", "Key 198.51.100.7")
	p.untilShows("tbody tr:first-child", "search")
	p.untilShows("tbody tr:first-child", "in shadow, which refuses nothing")
	p.untilShows("main", "No policy that was searched refuses it now. 2 of 5 policies cannot be searched for it.")
	p.check("key everywhere")
	p.enter("Search a client, a key, or the ID of a refusal", "203.0.113.9")
	p.keys("\r")
	p.untilShows("h1", "Key 203.0.113.9")
	p.untilShows("main .bad", "It is refused now by login.")
	p.untilShows("tbody tr:first-child", "locked out for")
	p.enter("Search a client, a key, or the ID of a refusal", "0000000000000000")
	p.keys("\r")
	p.untilShows("h1", "Key 0000000000000000")
}

// TestSearchOfARefusedClient: a client that is refused under the key of its network, or of its API, is never told to be in the clear.
func TestSearchOfARefusedClient(t *testing.T) {
	s := serve(t, `version: 1
policies:
  nets: {limit: 2/h, key: client.net}
  api: {limit: 1/h, key: 'request.headers["x-api-key"]'}
  idle: {limit: 5/h, key: client.ip}
rules:
  - {name: api, match: {path: /api}, limits: api, final: true}
  - {name: idle, match: {path: /idle}, limits: idle, final: true}
  - {name: all, limits: nets}
`)
	for range 4 {
		s.decide(request("GET", "/", "198.51.100.52"))
		s.decide(request("GET", "/api", "192.0.2.52", "X-Api-Key", "acme"))
	}
	p := open(t, s.address, 1280, "light")
	p.live()
	for client, key := range map[string]string{"198.51.100.52": "198.51.100.0/24", "192.0.2.52": "acme"} {
		p.visit("#/keys?key="+client, "Key "+client)
		p.untilShows("main .bad", "It is refused now by ")
		p.untilShows("tbody tr:first-child", key)
		p.untilShows("main", "an address does not tell what its keys are made of")
		p.until(`document.querySelectorAll("section[aria-labelledby=refused] tbody tr").length === ` +
			map[string]string{"acme": "3", "198.51.100.0/24": "2"}[key])
		p.check("search")
	}
	p.visit("#/keys?key=203.0.113.1", "Key 203.0.113.1")
	p.untilShows("main", "No policy is known to track it. 1 of 3 policies cannot be searched for it.")
	p.untilShows("main", "Nothing is kept of it by ")
	p.visit("#/keys?policy=nets&key=198.51.100.52", "Key 198.51.100.52")
	p.untilShows("main", "Nothing is kept of this key. Keys of this policy are client.net.")
	if shown := p.shown(); strings.Contains(shown, "2 of 2 remaining") || strings.Contains(shown, "allowed") {
		t.Errorf("a key that nothing is kept of is told to be in the clear:\n%s", shown)
	}
}

// TestLiveRefusals looks at refusals as they come, keeps the list still, and narrows it down.
func TestLiveRefusals(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.visit("#/refusals", "Refusals")
	p.untilShows("main", "None of the refusals that are kept is of these.")
	for i := range 12 {
		s.decide(request("POST", "/login", fmt.Sprintf("203.0.113.%d", i%2)))
	}
	p.until(`document.querySelectorAll("tbody tr").length === 2`)
	p.press("Pause")
	s.decide(request("POST", "/login", "203.0.113.0"))
	p.untilShows("main", "paused: 1 more")
	if got := eval[int](p, `document.querySelectorAll("tbody tr").length`); got != 2 {
		t.Errorf("the list has %d rows, and was kept still with 2", got)
	}
	p.press("Resume")
	p.until(`document.querySelectorAll("tbody tr").length === 3`)
	p.enter("Key, exactly", "203.0.113.1")
	p.keys("\r")
	p.until(`document.querySelectorAll("tbody tr").length === 1`)
	p.choose("Policy", "per-client")
	p.untilShows("main", "None of the refusals that are kept is of these.")
}

// TestRefusalsDuringALoad: a refusal that is heard of while the list is loaded stays, although what is loaded is from before it.
func TestRefusalsDuringALoad(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.live()
	eval[any](p, `{
		const load = fetch;
		globalThis.fetch = async (url, options) => {
			const response = await load(url, options);
			if (!String(url).includes("/v1/admin/refusals")) return response;
			const said = await response.json();
			globalThis.loading = true;
			await new Promise((resolve) => { globalThis.release = resolve; });
			response.json = async () => {
				setTimeout(() => { globalThis.loading = false; });
				return said;
			};
			return response;
		};
	}; null`)
	for i, v := range []view{{id: "refusals", title: "Refusals"}, {id: "overview", title: "Overview"}} {
		client := fmt.Sprintf("203.0.113.%d", i)
		p.visit("#/"+v.id, v.title)
		p.until(`globalThis.loading`)
		for range 6 {
			s.decide(request("POST", "/login", client))
		}
		p.untilShows("tbody", client)
		eval[any](p, `release(), null`)
		p.until(`!globalThis.loading`)
		if shown := eval[string](p, `document.querySelector("main").innerText`); !strings.Contains(shown, client) {
			t.Errorf("%s: the refusal is gone once the list is loaded:\n%s", v.title, shown)
		}
	}
}

// TestHostileKeys shows keys and paths that would be markup, turn text around, or are very long.
func TestHostileKeys(t *testing.T) {
	s := serve(t, `version: 1
policies:
  accounts: {limit: 1/h, key: 'request.headers["x-account"]'}
rules:
  - {name: everybody, limits: accounts}
`)
	markup := `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`
	for _, key := range []string{markup, "abc\u202efdp.exe", "line\nfeed\x1b[31m", longKey()} {
		s.decide(request("GET", "/"+markup, "192.0.2.1", "X-Account", key))
		s.decide(request("GET", "/"+markup, "192.0.2.1", "X-Account", key))
	}
	p := open(t, s.address, 1280, "light")
	p.live()
	for _, view := range []string{"Refusals", "Keys"} {
		p.press(view)
		p.untilShows("h1", view)
		p.untilShows("tbody", markup)
		p.untilShows("tbody", `abc\xe2\x80\xaefdp.exe`)
		p.untilShows("tbody", `line\x0afeed\x1b[31m`)
		p.check(view + " with hostile keys")
	}
	eval[any](p, `[...document.querySelectorAll("tbody a.row")].find((a) => a.innerText.startsWith("<img")).click(), null`)
	p.untilShows("h1", "Key "+markup)
	p.untilShows("main", "The next request is refused")
	p.untilShows("main", "GET shop.example/"+markup)
	p.check("hostile key")
	if n := eval[int](p, `document.querySelectorAll("main img, main script, tbody style").length`); n != 0 {
		t.Errorf("%d elements were made of keys", n)
	}
	if title := eval[string](p, `document.title`); title != "Key "+markup+" · weir" {
		t.Errorf("the title is %q", title)
	}
}

func longKey() string { return strings.Repeat("segment-", 120) }
