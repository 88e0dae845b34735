package accesslog

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write examples/access.log anew")

// exampleLog is the log that users try replay on: ten minutes of a small shop.
// The test below writes it, and holds it to what the documentation says of it.
var exampleLog = filepath.Join("..", "..", "..", "..", "..", "examples", "access.log")

const (
	scraper  = "203.0.113.77"
	guesser  = "2001:db8:5c::17"
	duration = 10 * time.Minute
)

var exampleStart = time.Date(2026, time.March, 3, 14, 0, 0, 0, time.UTC)

// request is a line of the example log before it is written.
type request struct {
	start           time.Duration // since exampleStart
	took            time.Duration
	client          string
	method, target  string
	status, size    int
	referer, agent  string
	protocol, ident string
}

// traffic makes requests. Its numbers come from a fixed generator without the
// methods of rand.Rand, whose results may differ between releases of Go.
type traffic struct {
	random   *rand.PCG
	requests []request
}

func (tr *traffic) below(n int) int { return int(tr.random.Uint64() % uint64(n)) }

func (tr *traffic) between(low, high time.Duration) time.Duration {
	return low + time.Duration(tr.below(int((high-low)/time.Millisecond)))*time.Millisecond
}

func (tr *traffic) add(r request) {
	if r.start >= duration {
		return
	}
	if r.took == 0 {
		r.took = tr.between(3*time.Millisecond, 180*time.Millisecond)
	}
	if r.method == "" {
		r.method = "GET"
	}
	if r.referer == "" {
		r.referer = "-"
	}
	if r.protocol == "" {
		r.protocol = "HTTP/2.0"
	}
	tr.requests = append(tr.requests, r)
}

const site = "https://shop.example.com"

var browsers = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/133.0.0.0 Safari/537.36",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.3 Safari/605.1.15",
	"Mozilla/5.0 (X11; Linux x86_64; rv:135.0) Gecko/20100101 Firefox/135.0",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 18_3 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.3 Mobile/15E148 Safari/604.1",
	"Mozilla/5.0 (Linux; Android 15; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/133.0.0.0 Mobile Safari/537.36",
}

var shopPages = []struct {
	target string
	size   int
}{
	{"/products", 18422},
	{"/products?category=lamps", 15210},
	{"/products?category=chairs&sort=price", 14877},
	{"/products/walnut-desk", 9841},
	{"/products/reading-lamp", 9127},
	{"/products/oak-stool?color=natural", 8930},
	{"/search?q=desk+lamp", 11034},
	{"/cart", 5120},
	{"/about", 6408},
	{"/blog/how-to-oil-a-desk", 13377},
}

// visit is one person who reads a page, thinks, and goes on. A page with what belongs to it is four requests at most, and the
// thinking takes longer than four seconds: a client that does only this never exceeds one request a second with a burst of five.
func (tr *traffic) visit(client string) {
	agent := browsers[tr.below(len(browsers))]
	at := tr.between(0, duration*8/10)
	page, size, referer := "/", 12544, "https://www.example.net/"
	for views := 3 + tr.below(5); views > 0; views-- {
		tr.add(request{start: at, client: client, target: page, status: 200, size: size, referer: referer, agent: agent})
		if page == "/" {
			for i, asset := range []struct {
				target string
				size   int
			}{{"/assets/site.css", 21876}, {"/assets/app.js", 64310}, {"/assets/logo.svg", 3954}} {
				tr.add(request{start: at + time.Duration(150+40*i)*time.Millisecond, client: client, target: asset.target, status: 200, size: asset.size, referer: site + "/", agent: agent})
			}
		} else if name, ok := strings.CutPrefix(page, "/products/"); ok {
			name, _, _ = strings.Cut(name, "?")
			tr.add(request{start: at + 160*time.Millisecond, client: client, target: "/images/" + name + ".webp", status: 200, size: 41000 + tr.below(9000), referer: site + page, agent: agent})
			if tr.below(3) == 0 {
				tr.add(request{start: at + 5*time.Second, client: client, method: "POST", target: "/cart/items", status: 303, size: 0, referer: site + page, agent: agent})
			}
		}
		referer = site + page
		next := shopPages[tr.below(len(shopPages))]
		page, size = next.target, next.size
		at += tr.between(9*time.Second, 45*time.Second)
	}
}

func writeExample() []byte {
	tr := &traffic{random: rand.NewPCG(1, 0)}
	for i := range 34 {
		client := fmt.Sprintf("198.51.100.%d", 10+6*i)
		if i%4 == 3 {
			client = fmt.Sprintf("2001:db8:%x:%x::%x", 0x10+i, 0x100+tr.below(0x800), 1+tr.below(0xffff))
		}
		tr.visit(client)
	}
	for at := 4 * time.Second; at < duration; at += 30 * time.Second {
		tr.add(request{start: at, client: "192.0.2.5", target: "/healthz", status: 200, size: 2, agent: "uptime-probe/2.4", protocol: "HTTP/1.1"})
	}
	// A crawler that keeps to the delay it was asked for.
	for i, at := 0, 11*time.Second; at < duration; i, at = i+1, at+tr.between(8*time.Second, 12*time.Second) {
		page := shopPages[i%len(shopPages)]
		r := request{start: at, client: "192.0.2.140", target: page.target, status: 200, size: page.size, agent: "Mozilla/5.0 (compatible; ExampleBot/1.3; +https://bot.example.net/)", protocol: "HTTP/1.1"}
		if i == 0 {
			r.target, r.size = "/robots.txt", 118
		} else if i%9 == 4 {
			r.target, r.status, r.size = "/products/discontinued-"+fmt.Sprint(100+i), 404, 1843
		}
		tr.add(r)
	}
	// An accountant whose reports take long: their lines come late in the log.
	for i, at := 0, 50*time.Second; at < duration; i, at = i+1, at+tr.between(60*time.Second, 90*time.Second) {
		tr.add(request{start: at, took: tr.between(2500*time.Millisecond, 6*time.Second), client: "192.0.2.31", ident: "accounting", target: fmt.Sprintf("/admin/reports/sales-2026-%02d.csv", 1+i%2), status: 200, size: 200000 + tr.below(90000), referer: site + "/admin/reports", agent: browsers[2]})
	}
	// A scraper that walks the catalogue at about four requests a second.
	for i, at := 1, 3*time.Minute+10*time.Second; i <= 110; i, at = i+1, at+tr.between(180*time.Millisecond, 320*time.Millisecond) {
		tr.add(request{start: at, client: scraper, target: fmt.Sprintf("/products?page=%d", i), status: 200, size: 17000 + tr.below(3000), agent: "python-requests/2.32.3", protocol: "HTTP/1.1"})
	}
	// A client that tries passwords, at two to three requests a second, twice.
	for _, at := range []time.Duration{5*time.Minute + 42*time.Second, 8*time.Minute + 5*time.Second} {
		for range 42 {
			tr.add(request{start: at, client: guesser, method: "POST", target: "/login", status: 401, size: 612, referer: site + "/login", agent: browsers[0]})
			at += tr.between(250*time.Millisecond, 550*time.Millisecond)
		}
	}

	// A server writes a line when the response is complete, with the time at
	// which the request began.
	slices.SortStableFunc(tr.requests, func(a, b request) int { return cmp.Compare(a.start+a.took, b.start+b.took) })
	var text bytes.Buffer
	for _, r := range tr.requests {
		fmt.Fprintf(&text, "%s - %s [%s] \"%s %s %s\" %d %d \"%s\" \"%s\"\n",
			r.client, cmp.Or(r.ident, "-"), exampleStart.Add(r.start).Format("02/Jan/2006:15:04:05 -0700"),
			r.method, r.target, r.protocol, r.status, r.size, r.referer, r.agent)
	}
	return text.Bytes()
}

func TestExampleLog(t *testing.T) {
	text := writeExample()
	if *update {
		if err := os.WriteFile(exampleLog, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(exampleLog)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, text) {
		t.Errorf("%s is not what this test writes; run go test -run TestExampleLog -update", exampleLog)
	}

	entries, r := readAll(t, written)
	if r.Malformed() != 0 || len(entries) < 550 || len(entries) > 650 {
		t.Errorf("%d records and %d malformed lines, want about 600 and none", len(entries), r.Malformed())
	}
	byTime := func(a, b entry) int { return cmp.Compare(a.time, b.time) }
	if slices.IsSortedFunc(entries, byTime) {
		t.Error("no record is out of order, unlike in a log of a real server")
	}
	slices.SortStableFunc(entries, byTime)
	first, last := entries[0].time, entries[len(entries)-1].time
	if span := time.Duration(last - first); span < 9*time.Minute || span > duration {
		t.Errorf("the log spans %v, want about %v", span, duration)
	}

	// One permit a second, five at once, in whole milliseconds.
	type bucket struct{ tokens, at int64 }
	buckets := map[netip.Addr]*bucket{}
	refused := map[string]int{}
	for _, e := range entries {
		b := buckets[e.client]
		if b == nil {
			b = &bucket{tokens: 5000, at: e.time}
			buckets[e.client] = b
		}
		b.tokens = min(5000, b.tokens+(e.time-b.at)/1e6)
		b.at = e.time
		if b.tokens < 1000 {
			refused[e.client.String()]++
			continue
		}
		b.tokens -= 1000
	}
	t.Logf("%d records, %d clients, refused %v", len(entries), len(buckets), refused)
	if len(refused) != 2 || refused[scraper] < 50 || refused[guesser] < 30 {
		t.Errorf("refused %v, want many of %s and of %s, and of no other", refused, scraper, guesser)
	}
	for client := range buckets {
		if !slices.ContainsFunc([]string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"}, func(prefix string) bool {
			return netip.MustParsePrefix(prefix).Contains(client)
		}) {
			t.Errorf("%v is not an address for documentation", client)
		}
	}
}
