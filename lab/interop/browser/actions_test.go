package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestActions unlocks, overrides, restores and resets a key, each in a dialog that wants a reason, and asks the server each time whether
// it holds.
func TestActions(t *testing.T) {
	s := serve(t, shop)
	visits(s)
	login := request("POST", "/login", "203.0.113.9")
	p := open(t, s.address, 1280, "light")
	p.live()

	p.press("Lockouts\n1\n1 locked out")
	p.untilShows("h1", "Lockouts")
	p.untilShows("tbody", "203.0.113.9")
	p.press("Unlock\n203.0.113.9 of login")
	p.untilShows("dialog", "key 203.0.113.9 of policy login")
	p.check("dialog")
	p.press("Unlock") // without a reason
	p.until(`document.querySelector("dialog[open] :invalid")`)
	p.keys("\x1b")
	p.until(`!document.querySelector("dialog")`)
	p.until(`document.activeElement.innerText.startsWith("Unlock")`)
	p.press("Unlock\n203.0.113.9 of login")
	p.act("Unlock", "a call from the customer", "Unlocked. The next request is refused: retry after")
	p.untilShows("main", "No key that is known by name is locked out")

	p.visit("#/keys?policy=login&key=203.0.113.9", "Key 203.0.113.9")
	p.untilShows("main", "The next request is refused")
	p.press("Override")
	p.enter("Limit 1h", "lots")
	p.enter("Reason", "a mistake")
	p.allow("400 (Bad Request)")
	p.press("Override")
	p.untilShows("dialog [role=alert]", `must be a rate such as "100/s"`)
	p.check("dialog with a mistake")
	p.enter("Limit 1h", "100/s, burst 200")
	p.act("Override", "they move house today", "Overridden for 30 min, in this server only.")
	p.untilShows("main", "they move house today")
	p.untilShows("main", "100/s, burst 200")
	within(t, patience, "the override holds", func() bool { return s.decide(login) == "" })
	p.visit("#/keys", "Keys")
	p.untilShows("main", "they move house today")

	p.visit("#/keys?policy=login&key=203.0.113.9", "Key 203.0.113.9")
	p.press("Restore")
	p.act("Restore", "they have moved", "Restored.")
	within(t, patience, "the override is gone", func() bool { return s.decide(login) != "" })
	p.untilShows("main", "The next request is refused")
	p.press("Reset")
	p.act("Reset", "they may begin anew", "Reset.")
	p.untilShows("main", "Nothing is kept of this key")
	if refusal := s.decide(login); refusal != "" {
		t.Error("it is refused after the reset")
	}
	p.press("Override")
	p.press("No limit at all")
	p.act("Override", "they pay for it", "Overridden for 30 min, in this server only.")
	p.untilShows("main", "The next request is allowed, whatever it asks for.")
	p.check("key")

	for range 9 {
		s.decide(request("POST", "/login", "203.0.113.10"))
	}
	p.visit("#/keys?policy=login&key=203.0.113.10", "Key 203.0.113.10")
	p.untilShows("main", "Locked out for")
	p.press("Override")
	p.until(`/It is locked out for 1\d min( \d+ s)? still, which this does not change\./.test(document.querySelector("dialog")?.innerText)`)
	p.press("No limit at all")
	p.check("dialog of a key that is locked out")
	p.act("Override", "not yet", "Overridden for 30 min, in this server only. Locked out for")
	p.press("Reset")
	p.untilShows("dialog", "which this does not change.")
	p.keys("\x1b")
	p.until(`!document.querySelector("dialog")`)
	p.press("Override")
	p.until(`document.querySelector("dialog [type=checkbox]").checked`) // as the one in force has no limit
	p.press("End its lockout too")
	p.act("Override", "now they may", "Overridden for 30 min, in this server only, and unlocked.")
	p.untilShows("main", "The next request is allowed, whatever it asks for.")
	if refusal := s.decide(request("POST", "/login", "203.0.113.10")); refusal != "" {
		t.Error("it is refused after the override and the unlock")
	}

	p.visit("#/audit", "Audit")
	for _, part := range []string{
		"unlock", "a call from the customer", "100/s, burst 200", "they have moved", "they may begin anew", "they pay for it", "ok",
	} {
		p.untilShows("tbody", part)
	}
	p.check("audit")
}

// act gives the reason that a dialog wants, does what it is about, and waits for what is said then.
func (p *tab) act(button, reason, said string) {
	p.t.Helper()
	p.enter("Reason", reason)
	p.press(button)
	p.until(`!document.querySelector("dialog")`)
	p.untilShows("#notes", said)
}

// TestReloadUnderLoad reloads while requests come in: first a configuration with a mistake, then a right one.
func TestReloadUnderLoad(t *testing.T) {
	s := serve(t, shop)
	stop := load(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.until(`parseFloat(document.querySelector(".tile.allowed .value").innerText) > 0`)

	p.press("Configuration")
	p.untilShows("h1", "Configuration")
	s.configure(strings.Replace(shop, "limits: search", "limits: serach", 1))
	p.press("Reload")
	p.enter("Reason", "a typing mistake")
	p.allow("422") // what a reload with mistakes is answered
	p.allow("400")
	p.press("Reload")
	p.untilShows("dialog [role=alert]", "serach")
	p.press("Cancel")
	p.untilShows(".banner", "The last reload was refused")
	p.untilShows(".history .refused", "serach")
	p.until(`document.querySelector("nav a[data-view=configuration] .badge").checkVisibility()`)
	p.check("configuration with mistakes")

	s.configure(strings.Replace(shop, "limit: 1000/s, burst: 2000", "limit: 1500/s, burst: 3000", 1))
	p.press("Reload")
	p.act("Reload", "more for everybody", "Reloaded") // or it has, as the server looks at the file
	p.untilShows(".history", "version 2")
	p.untilShows(".history", "per-client")
	p.untilShows(".source", "limit: 1500/s, burst: 3000")
	p.until(`!document.querySelector(".banner")`)
	p.visit("#/policies", "Policies")
	p.untilShows("tbody", "1500/s, burst 3000")
	p.until(`document.getElementById("live").dataset.state === "live"`)
	if sent := stop(); sent == 0 {
		t.Error("nothing was sent meanwhile")
	}
}

// load sends requests one after the other until stop is called, which answers how many there were. None may fail.
func load(s *server) (stop func() int) {
	quit, done := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-quit:
				done <- n
				return
			default:
			}
			status, _, answer := s.post("/v1/decide", request("GET", "/", fmt.Sprintf("198.51.100.%d", n%250)))
			if status != http.StatusOK && status != http.StatusTooManyRequests {
				s.t.Errorf("under load: %d %s", status, answer)
			}
		}
	}()
	stop = sync.OnceValue(func() int {
		close(quit)
		return <-done
	})
	s.t.Cleanup(func() { stop() }) // before the server ends
	return stop
}

// TestTenThousandKeys shows as many keys.
func TestTenThousandKeys(t *testing.T) {
	s := serve(t, `version: 1
policies:
  many: {limit: 10/h, key: 'request.headers["x-account"]'}
rules:
  - {name: everybody, limits: many}
`)
	const keys, batch = 10_000, 500
	for from := 0; from < keys; from += batch {
		checks := make([]string, batch)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"policy":"many","key":"account-%05d","cost":%d}`, from+i, 1+(from+i)%9)
		}
		if status, _, answer := s.post("/v1/batch", `{"checks":[`+strings.Join(checks, ",")+`]}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	p := open(t, s.address, 1280, "light")
	p.live()
	began := time.Now()
	p.visit("#/keys?policy=many&n=10000", "Keys")
	p.untilShows(".pager", "1 to 100 of 10,000")
	t.Logf("10,000 keys are shown after %v", time.Since(began))
	p.untilShows("main", "Tracked: 10,000 keys")
	p.press("Next")
	p.untilShows(".pager", "101 to 200 of 10,000")
	p.check("10,000 keys")
	// Sorted by name, all of them.
	p.press("Previous")
	eval[any](p, `[...document.querySelectorAll("th button")].find((b) => b.innerText.trim() === "Used").click(), null`)
	p.until(`document.querySelector("tbody .used").innerText.includes("1 of 10 remaining")`)
	eval[any](p, `[...document.querySelectorAll("th button")].find((b) => b.innerText.trim() === "Used").click(), null`)
	p.until(`document.querySelector("tbody .used").innerText.includes("9 of 10 remaining")`)
	p.untilShows("tbody", "without a name") // those of keys that were never refused are not kept, but can be asked for
	p.enter("Key, exactly", "account-00042")
	p.keys("\r")
	p.untilShows("h1", "Key account-00042")
	p.untilShows("main", "3 of 10 remaining")
}

// TestToken enters a wrong token and the right one.
func TestToken(t *testing.T) {
	file := tokenFile(t, "ada 0123456789abcdef0123456789abcdef\n")
	s := serve(t, shop, "--admin-token-file", file)
	p := open(t, s.address, 1280, "light")
	p.allow("401 (Unauthorized)")
	p.allow("Password forms should have") // there is no name to enter
	p.untilShows("dialog", "--admin-token-file")
	p.check("token")
	p.enter("Token", "not-the-right-one")
	p.press("Enter")
	p.untilShows("dialog [role=alert]", "does not know this token")
	p.press("Cancel")
	p.untilShows("main", "This server wants a token.")
	p.press("Enter a token")
	p.enter("Token", "0123456789abcdef0123456789abcdef")
	p.press("Enter")
	p.live()
	p.visit("#/audit", "Audit")
	p.untilShows("tbody", "login-failed")
	p.visit("#/configuration", "Configuration")
	p.press("Reload")
	p.act("Reload", "to see who", "Reloaded")
	p.visit("#/audit", "Audit")
	p.untilShows("tbody tr:first-child", "ada")
	if kept := eval[int](p, `localStorage.length`); kept != 0 {
		t.Errorf("%d things are kept beyond the tab", kept)
	}
}

// TestConnection loses the server, and finds it again.
func TestConnection(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.allow("ERR_")
	p.allow("weir: events: ")
	p.live()
	visits(s)
	p.untilShows("main", "203.0.113.9")
	p.until(`!document.body.classList.contains("stale") && document.querySelector(".gone").hidden`)
	told := eval[string](p, `document.querySelector(".tile.refused .note").innerText`)
	s.at.Stop()
	p.until(`document.getElementById("live").dataset.state === "lost"`)
	p.untilShows("#live", "connection lost")
	// The clock of the page goes on by itself: what is old is told to be so, with its age, in every view.
	eval[any](p, `(() => { const at = Date.now() + 3_600_000; Date.now = () => at; })(), null`)
	p.until(`/^No answer since \d\d:\d\d:\d\d \(1 h( \d+ (min|s))?\)\. What is shown is of then\. Trying again\.$/.test(` +
		`document.querySelector(".gone").innerText)`)
	if got := eval[string](p, `document.querySelector(".tile.refused .note").innerText`); got != told {
		t.Errorf("the figures of then are gone: %s, want %s", got, told)
	}
	colour := `getComputedStyle(document.querySelector(".tile.refused .value")).color`
	p.until(colour + ` === getComputedStyle(document.querySelector(".content")).color`)
	p.until(`getComputedStyle(document.querySelector(".content")).filter === "grayscale(1)"`)
	p.check("connection lost")
	p.still()
	for _, v := range views {
		p.visit("#/"+v.id, v.title)
		p.untilShows(".gone", "No answer since")
		p.until(`document.body.classList.contains("stale")`)
	}
	s.start()
	p.live()
	p.until(`!document.body.classList.contains("stale") && document.querySelector(".gone").hidden`)
	visits(s)
	p.visit("#/overview", "Overview")
	p.untilShows("main", "203.0.113.9")
	p.until(`!document.querySelector(".stale")`)
}

// TestSilence has a server that keeps its connections and says nothing: what it has said is not taken for what is now.
func TestSilence(t *testing.T) {
	s := serve(t, shop)
	visits(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.untilShows("main", "203.0.113.9")
	s.at.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { s.at.Signal(syscall.SIGCONT) })
	p.untilShows(".gone", "What is shown is of then.")
	p.until(`document.body.classList.contains("stale")`)
	s.at.Signal(syscall.SIGCONT)
	p.allow("weir: events: ")
	p.until(`!document.body.classList.contains("stale") && document.querySelector(".gone").hidden`)
}

// TestStoreAway has a store that nothing listens for: the page says so, and does not take the keys that it does not know for none.
func TestStoreAway(t *testing.T) {
	s := serve(t, `version: 1
store: redis://127.0.0.1:1
policies:
  shared: {limit: 10/s, key: client.ip, consistency: coherent, fail: open}
rules:
  - {name: all, limits: shared}
`)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.visit("#/replicas", "Replicas")
	p.untilShows("main .bad", "Unavailable, since ")
	p.untilShows("main", "There is no cluster: no limit is durable.")
	p.check("replicas without the store")
	p.visit("#/policies", "Policies")
	p.until(`document.querySelector("tbody td[data-title=Keys]").innerText === "–"`) // it is not known
	p.visit("#/keys?policy=shared", "Keys")
	p.untilShows("main", "Not kept by this process alone (coherent): those that it has refused are listed.")
	p.visit("#/keys?key=203.0.113.9", "Key 203.0.113.9")
	p.untilShows("tbody", "not known: ")
	p.untilShows("main", "1 of 1 policies cannot be searched for it.")
	p.untilShows("main", "What other servers keep for themselves is not known here")
	p.check("search without the store")
}
