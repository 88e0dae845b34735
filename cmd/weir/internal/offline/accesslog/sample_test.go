package accesslog

import (
	"os"
	"strings"
	"testing"
)

func sampleText(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/sample.log")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sampleLines(t testing.TB) []string {
	return strings.Split(strings.TrimSuffix(string(sampleText(t)), "\n"), "\n")
}

// TestSample reads a log that mixes the formats of several servers.
func TestSample(t *testing.T) {
	const (
		firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
		iphone  = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1"
		site    = "https://www.example.com/"
	)
	at := func(seconds float64) int64 { return noon + int64(seconds*1e9) }
	want := []entry{
		{at(0), addr("192.0.2.10"), "", "", "GET", "/", "", 200, 5120, "", firefox},
		{at(0), addr("192.0.2.10"), "", "", "GET", "/assets/site.css", "", 200, 18230, site, firefox},
		{at(1), addr("192.0.2.10"), "", "", "GET", "/assets/logo.svg", "", 304, 0, site, firefox},
		{at(2), addr("198.51.100.7"), "", "", "POST", "/api/orders", "dry_run=1", 201, 342, "", "example-client/3.2"},
		{at(2), addr("2001:db8:17::5"), "", "", "GET", "/products", "id=17&sort=price", 200, 20480, site, iphone},
		{at(1), addr("203.0.113.99"), "", "", "GET", "/slow/report.pdf", "", 200, 1048576, "", "curl/8.5.0"},
		{at(3), addr("203.0.113.99"), "", "", "HEAD", "/robots.txt", "", 404, 0, "", ""},
		{time: at(3), name: "client.example.org", method: "GET", path: "/feed.xml", status: 200, bytes: 7301},
		{time: at(4), client: addr("192.0.2.66"), status: 408},
		{time: at(4), client: addr("192.0.2.66"), status: 400, bytes: 157},
		{at(5), addr("203.0.113.5"), "", "", "GET", "/search", `q="rate+limit"`, 200, 912, "", `agent "quoted" \ 1.0`},
		{at(5), addr("203.0.113.5"), "", "", "GET", "/a%20b/%C3%A4", "", 200, 12, "", "Mozilla/5.0 (compatible; ExampleBot/2.1; +https://bot.example.net/about"},
		{at(6), addr("192.0.2.10"), "", "www.example.com", "GET", "/cart", "", 200, 640, "https://www.example.com/products", "Mozilla/5.0"},
		{at(6), addr("2001:db8:17::6"), "", "shop.example.com", "PUT", "/cart/items/3", "", 204, 0, "", "Mozilla/5.0"},
		{at(7), addr("192.0.2.80"), "", "www.example.com", "GET", "/proxied", "", 200, 88, "", ""},
		{at(7), addr("198.51.100.7"), "", "", "OPTIONS", "*", "", 401, 0, "", "example-client/3.2"},
		{at(8), addr("198.51.100.8"), "", "", "DELETE", "/api/orders/9", "", 403, 41, "", "example-client/3.2"},
		{at(8), addr("fe80::1%eth0"), "", "", "GET", "/health", "", 200, 2, "", "probe"},
		{at(10), addr("192.0.2.21"), "", "www.example.com", "GET", "/nginx", "a=1", 200, 615, "", "Mozilla/5.0"},
		{at(10.25), addr("2001:db8::21"), "", "www.example.com", "GET", "/nginx/b", "x=%2F", 404, 1290, "", ""},
		{at(11) + 524102400, addr("192.0.2.22"), "", "caddy.example.com", "GET", "/caddy", "y=2", 200, 10900, "https://caddy.example.com/", "curl/8.5.0"},
		{at(12) + 1200000, addr("192.0.2.23"), "", "traefik.example.com", "GET", "/traefik", "z=3", 200, 4096, "", "Go-http-client/1.1"},
		{at(13.125), addr("192.0.2.24"), "", "envoy.example.com", "POST", "/envoy.Service/Method", "", 200, 77, "", "grpc-go/1.64.0"},
		{at(14), addr("192.0.2.25"), "", "", "GET", "/logstash", `q=ä"`, 304, 0, "", "Mozilla/5.0 \U0001F600"},
		{time: at(15), name: "client.example.org", method: "PATCH", path: "/general", status: 500},
		{at(17), addr("198.51.100.200"), "", "", "GET", "/last", "", 200, 17, "", "Mozilla/5.0"},
	}
	got, r := readAll(t, sampleText(t))
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("record %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
	if r.Lines() != 30 || r.Records() != 26 || r.Malformed() != 4 {
		t.Errorf("%d lines, %d records, %d malformed; want 30, 26, 4", r.Lines(), r.Records(), r.Malformed())
	}
	wantErrors := []LineError{
		{19, `time "31/Jun/2024:12:00:09 +0000": ` + wantDay, `192.0.2.10 - - [31/Jun/2024:12:00:09 +0000] "GET /no-such-day HTTP/1.1" 200 0 "-" "-"`},
		{20, `request "GET /cut-off HTTP/1.1": no closing quote`, `192.0.2.10 - - [01/Jul/2024:12:00:09 +0000] "GET /cut-off HTTP/1.1`},
		{24, "line: a JSON object without client, method and path is not a request", `{"level":"info","ts":1719835211.6,"msg":"serving initial configuration"}`},
		{29, "JSON at byte 79: " + wantQuote, `{"time":"2024-07-01T12:00:16Z","remote_ip":"192.0.2.26","method":"GET","path":"/cut`},
	}
	errors := r.Errors()
	if len(errors) != len(wantErrors) {
		t.Fatalf("errors %v, want %v", errors, wantErrors)
	}
	for i := range wantErrors {
		if errors[i] != wantErrors[i] {
			t.Errorf("got %+v\nwant %+v", errors[i], wantErrors[i])
		}
	}
}
