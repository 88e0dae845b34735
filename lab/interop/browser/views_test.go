package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// shop is a configuration with everything that the dashboard shows.
const shop = `version: 1
policies:
  per-client: {limit: 1000/s, burst: 2000, key: client.ip}
  login:
    limit: 5/h
    key: client.ip
    lockout: {refusals: 3, within: 1m, for: 15m}
  jobs:
    limits: [{algorithm: concurrency, permits: 2}]
    key: 'request.headers["x-job"]'
    queue: {limit: 10, max_wait: 2m}
  search: {limit: 1/h, burst: 10, key: client.ip, mode: shadow}
  tokens:
    limit: 10_000/h
    key: 'request.headers["x-api-key"]'
    candidate: {limit: 10/h, burst: 10}
rules:
  - name: health
    match: {path: /healthz}
    exempt: true
  - name: login
    match: {method: POST, path: /login}
    limits: [login, per-client]
    final: true
  - name: search
    match: {path: /search}
    limits: search
  - name: tokens
    match: {path: /v1/complete}
    limits: tokens
  - name: jobs
    match: {path: /jobs}
    limits: jobs
  - name: everybody
    limits: per-client
`

// view is one of the dashboard: the letter that leads to it after g, its address, its heading, and what it shows with shop.
type view struct{ letter, id, title, shows string }

var views = []view{
	{"r", "refusals", "Refusals", "shop.example/login"},
	{"p", "policies", "Policies", "10000/h"},
	{"k", "keys", "Keys", "203.0.113.9"},
	{"l", "lockouts", "Lockouts", "203.0.113.9"},
	{"d", "differences", "Differences", "Newly refused the most"},
	{"e", "explain", "Explain", "What would become of a request"},
	{"c", "configuration", "Configuration", "limits: [login, per-client]"},
	{"s", "replicas", "Replicas", "no limit is shared"},
	{"a", "audit", "Audit", "Nothing has been changed"},
	{"o", "overview", "Overview", "p99.9"},
}

// request describes a request to /v1/decide.
func request(method, path, client string, header ...string) string {
	described := map[string]any{"method": method, "host": "shop.example", "path": path, "client": client}
	if len(header) == 2 {
		described["headers"] = map[string]string{header[0]: header[1]}
	}
	text, err := json.Marshal(described)
	if err != nil {
		panic(err) // strings have a form
	}
	return string(text)
}

// decide sends a request to /v1/decide, and returns the ID of the refusal, "" if it is none.
func (s *server) decide(request string) string {
	s.t.Helper()
	status, refusal, answer := s.post("/v1/decide", request)
	if status != http.StatusOK && status != http.StatusTooManyRequests {
		s.t.Fatalf("%s: %d %s", request, status, answer)
	}
	if (status == http.StatusOK) != (refusal == "") {
		s.t.Fatalf("%s: %d, with the refusal %q", request, status, refusal)
	}
	return refusal
}

// visits sends requests of which some are refused, and one client is locked out; it answers the ID of the last refusal.
func visits(s *server) string {
	s.t.Helper()
	last := ""
	for range 9 {
		last = s.decide(request("POST", "/login", "203.0.113.9"))
	}
	for i := range 30 {
		client := fmt.Sprintf("198.51.100.%d", i%5)
		s.decide(request("GET", "/", client))
		s.decide(request("GET", "/search", "198.51.100.7"))
		s.decide(request("GET", "/v1/complete", client, "X-Api-Key", "acme"))
	}
	return last
}

// TestViews goes to each view by its letters, and looks at it in both colours and in the width of a telephone.
func TestViews(t *testing.T) {
	s := serve(t, shop)
	visits(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.until(`document.querySelector(".chart canvas")`)
	p.still()
	for _, v := range views {
		p.keys("g" + v.letter)
		p.until(`document.title === ` + quote(v.title+" · weir"))
		if got := eval[string](p, `location.hash`); got != "#/"+v.id {
			t.Errorf("%s: the address is %s", v.title, got)
		}
		if got := eval[string](p, `document.querySelector("nav a[aria-current=page]").innerText.split("\n")[0]`); got != v.title {
			t.Errorf("%s: the way says %q", v.title, got)
		}
		if got := eval[string](p, `document.querySelector("main section[aria-labelledby=title] h1").textContent`); got != v.title {
			t.Errorf("%s: the landmark has the heading %q", v.title, got)
		}
		if got := eval[string](p, `document.activeElement.id`); got != "title" {
			t.Errorf("%s: the focus is on %q, and not on the heading", v.title, got)
		}
		p.untilShows("main", v.shows)
		p.check(v.title)
	}
	p.untilShows(".charts", "per-client")
	// The same in other colours and widths, at once for all views: only what is drawn differs.
	p.prefer("dark")
	for _, v := range views {
		p.visit("#/"+v.id, v.title)
		p.untilShows("main", v.shows)
		p.check(v.title + ", dark")
	}
	phone := open(t, s.address, 360, "light")
	phone.live()
	for _, v := range views {
		phone.visit("#/"+v.id, v.title)
		phone.untilShows("main", v.shows)
		phone.check(v.title + ", 360 pixels wide")
	}
	// Nothing came from elsewhere.
	for _, from := range eval[[]string](p, `performance.getEntriesByType("resource").map((e) => e.name)`) {
		if !strings.HasPrefix(from, "http://"+s.address+"/") {
			t.Errorf("the page asked for %s", from)
		}
	}
}

// TestDetails looks at what is behind the rows: a policy, its report, and the differences.
func TestDetails(t *testing.T) {
	s := serve(t, shop)
	visits(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.visit("#/policies", "Policies")
	p.untilShows("tbody", "jobs")
	p.enter("Filter by name", "log")
	p.until(`document.querySelectorAll("tbody tr").length === 1`)
	p.click("tbody a.row")
	p.until(`document.title === "Policy login · weir"`)
	p.untilShows("main", "5/h, burst 5")
	p.untilShows("main", "client.ip")
	p.press("Report as text")
	p.untilShows("pre", "203.0.113.9")
	p.check("policy")
	p.press("Top keys")
	p.untilShows("tbody", "203.0.113.9")
	p.visit("#/policies?name=tokens", "Policy tokens")
	p.untilShows("main", "What the candidate would change")
	p.untilShows("main ol", "acme")
	p.visit("#/policies?name=nothing", "Policy nothing")
	p.untilShows("main", "There is no such policy.")
	p.visit("#/differences", "Differences")
	p.untilShows("main ol", "198.51.100.7")
	p.untilShows("main ol", "acme")
	if got := eval[int](p, `document.querySelectorAll(".differences .card").length`); got != 2 {
		t.Errorf("%d policies differ, want 2", got)
	}
}

// TestTables sorts by a heading with the keyboard.
func TestTables(t *testing.T) {
	s := serve(t, shop)
	visits(s)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.visit("#/policies", "Policies")
	names := `[...document.querySelectorAll("tbody tr td:first-child")].map((e) => e.innerText).join()`
	heading := `[...document.querySelectorAll("th button")].find((b) => b.innerText.trim() === "Policy")`
	p.until(heading)
	eval[any](p, heading+`.focus(), null`)
	p.keys("\r")
	p.until(names + ` === "jobs,login,per-client,search,tokens"`)
	p.until(heading + `.closest("th").ariaSort === "ascending"`)
	p.keys("\r")
	p.until(names + ` === "tokens,search,per-client,login,jobs"`)
	p.until(heading + `.closest("th").ariaSort === "descending"`)
}

// TestCharts compares the tables beside charts, that of all requests and that of a policy, with what was sent.
func TestCharts(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.until(`document.querySelector(".chart canvas")`)
	all := `document.querySelector("figure.chart")`
	of := func(policy string) string {
		return `[...document.querySelectorAll("figure.chart")]` +
			`.find((f) => f.querySelector("figcaption a")?.innerText === ` + quote(policy) + `)`
	}
	rows := func(chart string) string { return `[...` + chart + `.querySelectorAll("tbody tr")]` }
	for _, chart := range []string{all, of("login"), of("jobs")} {
		p.until(chart)
		eval[any](p, chart+`.querySelector("summary").click(), null`)
		p.until(rows(chart) + `.length > 1`)
	}
	for range 9 {
		s.decide(request("POST", "/login", "203.0.113.10"))
	}
	// Some rows have the 5 that were allowed and the 4 that were not. Where the machine stands still, they are of more than a second.
	eval[any](p, `import("/ui/js/live.js").then((module) => { globalThis.heard = module.live }), null`)
	p.until(`globalThis.heard`)
	sum := func(chart string, column int) string {
		return fmt.Sprintf(`Math.round(%s.reduce((sum, row, i) => {
			const [at, before] = [heard.history.time.at(-1 - i), heard.history.time.at(-2 - i)];
			return sum + (Number(row.children[%d].innerText) * (at - before) || 0);
		}, 0))`, rows(chart), column)
	}
	p.until(sum(all, 1) + ` === 5 && ` + sum(all, 2) + ` === 4`)
	p.until(sum(of("login"), 1) + ` === 5 && ` + sum(of("login"), 2) + ` === 4`)
	p.untilShows(".tile", "44 % in all")
	p.check("chart as a table")

	// A request that waits is seen until there is a place.
	var held [2]struct {
		ID string `json:"id"`
	}
	for i := range held {
		status, _, answer := s.post("/v1/reserve", `{"policy":"jobs","key":"import","expires_in":600}`)
		if err := json.Unmarshal([]byte(answer), &held[i]); status != http.StatusOK || err != nil {
			t.Fatalf("%d %s", status, answer)
		}
	}
	waited := make(chan int, 1)
	go func() {
		status, _, _ := s.post("/v1/reserve", `{"policy":"jobs","key":"import","wait":120,"expires_in":1}`)
		waited <- status
	}()
	queued := func(chart string) string { return rows(chart) + `.some((r) => r.children[3].innerText === "1")` }
	p.until(queued(all) + ` && ` + queued(of("jobs")))
	if status, _, answer := s.post("/v1/cancel", `{"id":"`+held[0].ID+`"}`); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	if status := <-waited; status != http.StatusOK {
		t.Errorf("who has waited was answered %d", status)
	}
}

// TestThemes switches the colours by hand.
func TestThemes(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.live()
	ground := `getComputedStyle(document.body).backgroundColor`
	light := eval[string](p, ground)
	p.prefer("dark")
	p.until(ground + ` !== ` + quote(light))
	dark := eval[string](p, ground)
	p.click("#theme") // light
	p.until(ground + ` === ` + quote(light))
	p.do(chromedp.Reload())
	p.live()
	if got := eval[string](p, ground); got != light {
		t.Errorf("the choice is forgotten: %s", got)
	}
	p.click("#theme") // dark
	p.prefer("light")
	p.until(ground + ` === ` + quote(dark))
	p.click("#theme") // the system
	p.until(ground + ` === ` + quote(light))
}

// TestKeyboard uses the page without a mouse.
func TestKeyboard(t *testing.T) {
	s := serve(t, shop)
	p := open(t, s.address, 1280, "light")
	p.live()
	p.still()
	p.keys("\t")
	p.until(`document.activeElement.id === "skip"`)
	p.keys("\r")
	p.until(`document.activeElement.id === "main"`)
	p.keys("/")
	p.until(`document.activeElement.id === "sought"`)
	eval[any](p, `document.activeElement.value = "", null`) // the protocol types the character even if the page keeps it from that
	p.keys("gp")                                            // is text there
	p.until(`document.activeElement.value === "gp" && location.hash === ""`)
	eval[any](p, `document.activeElement.blur(), null`)
	p.keys("?")
	p.until(`document.querySelector("dialog[open] h2")?.innerText === "Keyboard"`)
	p.check("keyboard")
	p.click("#shortcuts")
	p.keys("\x1b")
	p.until(`!document.querySelector("dialog")`)
	p.keys("gp")
	if got := eval[string](p, `location.hash`); got != "" {
		t.Errorf("the letters are off, and led to %s", got)
	}
	p.click("#help")
	p.click("#shortcuts")
	p.keys("\x1b")
	p.until(`!document.querySelector("dialog")`)
	p.until(`document.activeElement.id === "help"`)
	p.keys("gp")
	p.until(`location.hash === "#/policies"`)
}
