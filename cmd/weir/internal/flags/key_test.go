package flags_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

func key(t testing.TB, by string) flags.Key {
	t.Helper()
	k, err := flags.ParseKey(by)
	if err != nil {
		t.Fatalf("ParseKey(%q): %v", by, err)
	}
	return k
}

func TestParseKeyReadsBackItsString(t *testing.T) {
	for by, want := range map[string]string{
		"none":                  "none",
		"client.ip":             "client.ip",
		"client.net":            "client.net",
		"client.net:24/64":      "client.net",
		"client.net:32/56":      "client.net:32/56",
		"header:x-api-key":      "header:X-Api-Key",
		"client.ip, path":       "client.ip,path",
		"host,method,path":      "host,method,path",
		"header:a,header:b":     "header:A,header:B",
		"client.ip,client.net":  "client.ip,client.net",
		"client.net:1/1,method": "client.net:1/1,method",
	} {
		if got := key(t, by).String(); got != want {
			t.Errorf("ParseKey(%q) = %q, want %q", by, got, want)
		}
		if got := key(t, want).String(); got != want {
			t.Errorf("ParseKey(%q) = %q", want, got)
		}
	}
}

func TestParseKeySaysWhatIsWrong(t *testing.T) {
	for by, want := range map[string][]string{
		"":                             {`""`, "client.ip, client.net, header:NAME, path, method, host, none"},
		"clientip":                     {`"clientip"`, "client.ip,", `did you mean "client.ip"?`},
		"IP":                           {`"IP"`, `did you mean "client.ip"?`},
		"ip,path":                      {`"ip"`, `did you mean "client.ip"?`},
		"client.ip,":                   {`""`, "client.ip,"},
		"client.ip,pth":                {`"pth"`, `did you mean "path"?`},
		"none,path":                    {"none stands alone"},
		"path,path":                    {"path stands there twice"},
		"request.path":                 {"--config", `did you mean "path"?`},
		`request.headers["x-api-key"]`: {"--config", `did you mean "header:X-Api-Key"?`},
		"header:":                      {"needs a name"},
		"header":                       {"needs a name"},
		"header:a b":                   {`"a b"`, "not the name of a header"},
		"header:host":                  {"is written host"},
		"client.net:33/64":             {"33/64", "1 to 32", "1 to 128"},
		"client.net:24":                {"1 to 32"},
		"client.net:0/0":               {"1 to 32"},
		"client.net:-1/64":             {"1 to 32"},
		"\x1b[31m":                     {`"\x1b[31m"`},
	} {
		_, err := flags.ParseKey(by)
		if err == nil {
			t.Errorf("ParseKey(%q): no error", by)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("ParseKey(%q): %q does not contain %q", by, err, part)
			}
		}
	}
}

func request(client string, set func(*http.Request)) (*http.Request, netip.Addr) {
	r := &http.Request{
		Method: http.MethodGet, Host: "Example.COM:8080", URL: &url.URL{Path: "/a/b"},
		Header: http.Header{"X-Api-Key": {"first", "second"}, "User-Agent": {"curl"}},
	}
	if set != nil {
		set(r)
	}
	address, _ := netip.ParseAddr(client)
	return r, address
}

// keyOf is the key of a request, as a policy has it.
func keyOf(t testing.TB, k flags.Key, r *http.Request, client netip.Addr) string {
	t.Helper()
	text := k.Text()
	of := &policy.Request{Method: r.Method, Host: r.Host, Header: r.Header, Client: client}
	if r.URL != nil {
		of.Path, of.RawPath = r.URL.Path, r.URL.RawPath
	}
	got, err := text.AppendTo(nil, of)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestFromRequest(t *testing.T) {
	path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = p } }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for _, c := range []struct {
		by, client string
		set        func(*http.Request)
		want       string
	}{
		{"none", "192.0.2.7", nil, ""},
		{"client.ip", "192.0.2.7", nil, "192.0.2.7"},
		{"client.ip", "::ffff:192.0.2.7", nil, "192.0.2.7"},
		{"client.ip", "2001:db8::1", nil, "2001:db8::1"},
		{"client.ip", "fe80::1%eth0", nil, "fe80::1"},
		{"client.ip", "", nil, "-"},
		{"client.net", "192.0.2.7", nil, "192.0.2.0/24"},
		{"client.net", "::ffff:192.0.2.7", nil, "192.0.2.0/24"},
		{"client.net", "2001:db8:1:2:3::1", nil, "2001:db8:1:2::/64"},
		{"client.net:32/48", "192.0.2.7", nil, "192.0.2.7/32"},
		{"client.net:32/48", "2001:db8:1:2:3::1", nil, "2001:db8:1::/48"},
		{"header:X-API-KEY", "", nil, "first"},
		{"header:None", "", nil, ""},
		{"method", "", nil, http.MethodGet},
		{"host", "", nil, "example.com"},
		{"host", "", host("[2001:DB8::1]:80"), "2001:db8::1"},
		{"host", "", host("2001:db8::1"), "2001:db8::1"},
		{"host", "", host("example.com."), "example.com"},
		{"path", "", nil, "/a/b"},
		{"path", "", path("//a/./c/../b"), "/a/b"},
		{"path", "", path("/a/b/"), "/a/b/"},
		{"path", "", path("/a/b/."), "/a/b/"},
		{"path", "", path("/a/../.."), "/"},
		{"path", "", path("/.well-known/x"), "/.well-known/x"},
		{"path", "", path("*"), "*"},
		{"client.ip,path", "192.0.2.7", nil, "192.0.2.7,/a/b"},
		{"path,method", "", path(`/a,b\`), `/a\,b\\,GET`},
		{"path", "", path(`/a,b\`), `/a,b\`},
	} {
		r, client := request(c.client, c.set)
		if got := keyOf(t, key(t, c.by), r, client); got != c.want {
			t.Errorf("%s of %s %s%s from %q: %q, want %q", c.by, r.Method, r.Host, r.URL.Path, c.client, got, c.want)
		}
	}
}

func TestLongPartsAreBounded(t *testing.T) {
	k := key(t, "header:X-Api-Key")
	of := func(v string) string {
		r, client := request("", func(r *http.Request) { r.Header.Set("X-Api-Key", v) })
		return keyOf(t, k, r, client)
	}
	long := strings.Repeat("x", 100_000)
	if got := of(long); len(got) > 200 {
		t.Errorf("a key of %d bytes", len(got))
	}
	if again := of(long); of(long) != again || again == of(long+"y") {
		t.Error("long values are not told apart")
	}
	if got := of(long[:128]); got != long[:128] {
		t.Errorf("128 bytes are not kept: %q", got)
	}
	if hashed := of(long); of(hashed) == hashed {
		t.Error("a value can be made that looks like the hash of another")
	}
}

// FuzzKeysDiffer: parts that differ never make the same key, whatever is in them.
func FuzzKeysDiffer(f *testing.F) {
	f.Add("a", "b,c", "a,b", "c")
	f.Add(`a\`, ",b", "a", `\,b`)
	f.Add("", "", ",", "")
	f.Add(strings.Repeat("x", 300), "y", strings.Repeat("x", 301), "y")
	k := key(f, "header:A,header:B")
	of := func(t *testing.T, a, b string) string {
		t.Helper()
		r := &http.Request{Header: http.Header{"A": {a}, "B": {b}}}
		return keyOf(t, k, r, netip.Addr{})
	}
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string) {
		same := a1 == a2 && b1 == b2
		if got := of(t, a1, b1) == of(t, a2, b2); got != same {
			t.Errorf("(%q, %q) and (%q, %q): %q and %q", a1, b1, a2, b2, of(t, a1, b1), of(t, a2, b2))
		}
	})
}

// FuzzBy: whatever --by is given, it is read back from its own text, or refused in one printable line.
func FuzzBy(f *testing.F) {
	for _, by := range []string{
		"none", "client.ip,path", "client.net:24/64", "header:X", "header:X,client.ip", "", ",", "Path", "client.net:", "\x00",
	} {
		f.Add(by)
	}
	f.Fuzz(func(t *testing.T, by string) {
		k, err := flags.ParseKey(by)
		if err != nil {
			for _, c := range err.Error() {
				if c < ' ' || c == 0x7f {
					t.Fatalf("ParseKey(%q): %q", by, err)
				}
			}
			return
		}
		again, err := flags.ParseKey(k.String())
		if err != nil || again.String() != k.String() {
			t.Fatalf("ParseKey(%q) is %q, which is read back as %q, %v", by, k, again, err)
		}
		r, client := request("192.0.2.7", nil)
		keyOf(t, k, r, client)
	})
}

// TestKeysAreThoseOfPolicies: what --by makes of a request is what a policy with the same parts makes of it.
func TestKeysAreThoseOfPolicies(t *testing.T) {
	network, err := policy.ClientNet(24, 64)
	if err != nil {
		t.Fatal(err)
	}
	texts := []policy.Text{
		policy.ClientIP(), network, policy.HeaderText("x-api-key"), policy.PathText(), policy.MethodText(), policy.HostText(),
	}
	words := strings.Split("client.ip,client.net,header:x-api-key,path,method,host", ",")
	for _, client := range []string{"192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1%eth0", ""} {
		for _, value := range []string{"a", `a,b\`, strings.Repeat("x", 200), ""} {
			r, address := request(client, func(r *http.Request) {
				r.Header.Set("X-Api-Key", value)
				r.URL.Path = "//" + value + "/./"
			})
			p := policy.Request{Method: r.Method, Host: r.Host, Path: r.URL.Path, Header: r.Header, Client: address}
			for i := range words {
				for j := i + 1; j <= len(words); j++ {
					want := keyOf(t, key(t, strings.Join(words[i:j], ",")), r, address)
					if got, err := policy.JoinText(texts[i:j]...).AppendTo(nil, &p); err != nil || string(got) != want {
						t.Errorf("%v: %q, %v, want %q", words[i:j], got, err, want)
					}
				}
			}
		}
	}
}

// TestOneClientHasOneKey: by default no address of a /64 of IPv6 has a limit of its own.
func TestOneClientHasOneKey(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8::7": "2001:db8::/64", "2001:db8::1:2:3:4%eth0": "2001:db8::/64",
	} {
		if got := keyOf(t, flags.Client(), r, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
		if text := flags.Client().Text(); text.String() != "client" {
			t.Error(text)
		}
	}
}

func TestSet(t *testing.T) {
	l := flags.Limit{Rate: weir.PerSecond(3), Burst: 7, By: flags.Client(), MaxKeys: 100}
	set := l.Set("limit")
	if err := set.Check(); err != nil {
		t.Error(err)
	}
	engine, err := policy.NewEngine(set, policy.EngineOptions{Clock: &manualclock.Clock{}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var v policy.Verdict
	for i := range 8 {
		engine.Take(&policy.Request{Client: netip.MustParseAddr("192.0.2.1")}, &v)
		if v.Allowed != (i < 7) {
			t.Errorf("request %d: %t", i, v.Allowed)
		}
		v.Release()
	}
}

func TestFromRecordEqualsFromRequest(t *testing.T) {
	rec := accesslog.Record{
		Client: netip.MustParseAddr("192.0.2.7"), Host: []byte("example.com"), Method: []byte("GET"),
		Path: []byte("/a/%62"), Referer: []byte("https://example.org/"), UserAgent: []byte("curl"),
	}
	r, client := request("192.0.2.7", func(r *http.Request) { r.Header.Set("Referer", "https://example.org/") })
	for _, by := range []string{
		"none", "client.ip", "client.net", "path", "method", "host", "header:User-Agent", "header:Referer",
		"client.ip,path", "host,method,path,client.net", "header:Referer,header:User-Agent",
	} {
		k := key(t, by)
		if got, want := string(k.AppendRecord(nil, &rec)), keyOf(t, k, r, client); got != want {
			t.Errorf("%s: %q of the record, %q of the request", by, got, want)
		}
		if err := k.CheckRecords(); err != nil {
			t.Errorf("%s: %v", by, err)
		}
	}

	rec = accesslog.Record{ClientName: []byte("host.example"), Path: []byte("/100%"), Host: []byte("EXAMPLE.com.:80")}
	for by, want := range map[string]string{
		"client.ip": "host.example", "client.net": "host.example", "path": "/100%", "method": "",
		"client.ip,header:Referer": "host.example,", "host": "example.com",
	} {
		if got := string(key(t, by).AppendRecord(nil, &rec)); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	rec.Host = []byte("%65xample%2Ecom")
	if got := string(key(t, "host").AppendRecord(nil, &rec)); got != "example.com" {
		t.Errorf("an encoded host is %q", got)
	}
	if got := string(key(t, "client.ip").AppendRecord(nil, &accesslog.Record{})); got != "-" {
		t.Errorf("a client that is not known is %q, want -", got)
	}
	if err := key(t, "path,header:Cookie").CheckRecords(); err == nil || !strings.Contains(err.Error(), "User-Agent") {
		t.Errorf("header:Cookie of records: %v", err)
	}
}

func TestKeysOfRecordsDoNotAllocate(t *testing.T) {
	rec := accesslog.Record{Client: netip.MustParseAddr("2001:db8::1"), Path: []byte("/a/b"), Method: []byte("GET")}
	b := make([]byte, 0, 256)
	for _, by := range []string{"none", "path", "method", "client.ip", "client.net", "header:User-Agent", "client.ip,path"} {
		k := key(t, by)
		if got := testing.AllocsPerRun(100, func() { k.AppendRecord(b, &rec) }); got > 0 {
			t.Errorf("%s: %v allocations", by, got)
		}
	}
}
