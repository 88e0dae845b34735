package adminguard_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/manualclock"
)

const right, other = "0123456789abcdef", "fedcba9876543210"

type asking struct {
	method, from, host, token string
	fields                    map[string]string
	tls                       bool
}

// ask returns the status, and who was let in.
func ask(t *testing.T, g *adminguard.Guard, a asking) (int, adminguard.Caller, *httptest.ResponseRecorder) {
	t.Helper()
	if a.method == "" {
		a.method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(t.Context(), a.method, "http://127.0.0.1:7070/v1/status", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	if a.from != "" {
		r.RemoteAddr = a.from
	}
	if a.host != "" {
		r.Host = a.host
	}
	if a.token != "" {
		r.Header.Set("Authorization", a.token)
	}
	for name, value := range a.fields {
		r.Header.Set(name, value)
	}
	if a.tls {
		r.TLS = new(tls.ConnectionState)
	}
	w := httptest.NewRecorder()
	in, p := g.Enter(w, r)
	if p != nil {
		p.Write(w)
		return w.Code, adminguard.Caller{}, w
	}
	return http.StatusOK, adminguard.CallerOf(in), w
}

func newGuard(t *testing.T, o adminguard.Options) *adminguard.Guard {
	t.Helper()
	g, err := adminguard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestWhoIsLetIn by tokens, certificates and the address that the server listens on.
func TestWhoIsLetIn(t *testing.T) {
	tokens := []adminguard.Token{adminguard.TokenOf("alice", right), adminguard.TokenOf("bob", other)}
	certificate := func(state *tls.ConnectionState) (string, bool) { return "carol", state != nil }
	cross := map[string]string{"Sec-Fetch-Site": "cross-site"}
	for name, c := range map[string]struct {
		o      adminguard.Options
		a      asking
		status int
		who    string
	}{
		"local":                            {adminguard.Options{Local: true}, asking{}, 200, "local"},
		"local by name":                    {adminguard.Options{Local: true}, asking{host: "LOCALHOST:7070"}, 200, "local"},
		"local, IPv6":                      {adminguard.Options{Local: true}, asking{host: "[::1]:7070"}, 200, "local"},
		"local under another name":         {adminguard.Options{Local: true}, asking{host: "evil.example:7070"}, 403, ""},
		"local, page of elsewhere":         {adminguard.Options{Local: true}, asking{method: "POST", fields: cross}, 403, ""},
		"local, page of elsewhere reads":   {adminguard.Options{Local: true}, asking{fields: cross}, 200, "local"},
		"local, by a proxy":                {adminguard.Options{Local: true}, asking{fields: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, 403, ""},
		"local, by another proxy":          {adminguard.Options{Local: true}, asking{fields: map[string]string{"Via": "1.1 proxy"}}, 403, ""},
		"token, by a proxy":                {adminguard.Options{Tokens: tokens}, asking{token: "Bearer " + right, fields: map[string]string{"Forwarded": "for=192.0.2.9"}}, 200, "alice"},
		"not local":                        {adminguard.Options{}, asking{}, 403, ""},
		"token":                            {adminguard.Options{Tokens: tokens}, asking{token: "Bearer " + other, host: "weir.example"}, 200, "bob"},
		"token, local":                     {adminguard.Options{Tokens: tokens, Local: true}, asking{}, 401, ""},
		"token, page of elsewhere":         {adminguard.Options{Tokens: tokens}, asking{method: "POST", token: "Bearer " + right, fields: cross}, 403, ""},
		"wrong token":                      {adminguard.Options{Tokens: tokens}, asking{token: "Bearer " + right + "0"}, 401, ""},
		"scheme in lower case, two spaces": {adminguard.Options{Tokens: tokens}, asking{token: "bearer  " + right}, 200, "alice"},
		"local, an address with a zone":    {adminguard.Options{Local: true}, asking{host: "[fe80::1%evil.example]:7070"}, 403, ""},
		"local, a zone, bare":              {adminguard.Options{Local: true}, asking{host: "::1%.evil.example"}, 403, ""},
		"local, brackets":                  {adminguard.Options{Local: true}, asking{host: "[::1]"}, 200, "local"},
		"local, wrong brackets":            {adminguard.Options{Local: true}, asking{host: "]127.0.0.1["}, 403, ""},
		"part of a token":                  {adminguard.Options{Tokens: tokens}, asking{token: "Bearer " + right[:15]}, 401, ""},
		"empty token":                      {adminguard.Options{Tokens: tokens}, asking{token: "Bearer "}, 401, ""},
		"token of another kind":            {adminguard.Options{Tokens: tokens}, asking{token: "Basic " + right}, 401, ""},
		"certificate":                      {adminguard.Options{Certificate: certificate}, asking{tls: true}, 200, "carol"},
		"no TLS":                           {adminguard.Options{Certificate: certificate, Local: true}, asking{}, 403, ""},
		"certificate or token":             {adminguard.Options{Certificate: certificate, Tokens: tokens}, asking{token: "Bearer " + right}, 200, "alice"},
	} {
		status, caller, w := ask(t, newGuard(t, c.o), c.a)
		if status != c.status || caller.Who != c.who {
			t.Errorf("%s: %d, %q, want %d, %q: %s", name, status, caller.Who, c.status, c.who, w.Body)
		}
		if (status == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate %q", name, w.Header().Get("WWW-Authenticate"))
		}
		if strings.Contains(w.Body.String(), right) || strings.Contains(w.Body.String(), other) {
			t.Errorf("%s: a token is told: %s", name, w.Body)
		}
	}
	var nobody *adminguard.Guard
	if status, _, _ := ask(t, nobody, asking{}); status != http.StatusForbidden {
		t.Errorf("no guard: %d", status)
	}
}

// TestTwoTokens: two fields are refused, as a proxy in front may have checked the other one.
func TestTwoTokens(t *testing.T) {
	g := newGuard(t, adminguard.Options{Tokens: []adminguard.Token{adminguard.TokenOf("alice", right)}})
	for _, fields := range [][]string{
		{"Bearer " + right, "Bearer wrong"},
		{"Bearer wrong", "Bearer " + right},
		{"Bearer " + right, "Bearer " + right},
		{"Bearer " + right, "Basic YTpi"},
		{"Bearer " + right, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:7070/v1/status", nil)
		r.Header["Authorization"] = fields
		if _, p := g.Enter(httptest.NewRecorder(), r); p == nil || p.Status != http.StatusUnauthorized {
			t.Errorf("%q: %v", fields, p)
		}
	}
}

// TestTokensAreReadAgain: a token that is taken out of the file is refused. If the file cannot be used, the tokens before it
// stay valid.
func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("alice " + right + "\nbob " + other)
	var logged bytes.Buffer
	file, err := adminguard.OpenTokens(path, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard(t, adminguard.Options{TokensNow: file.Now, Rate: weir.PerSecond(1_000_000), Burst: 1_000_000})
	bobs := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:7070/v1/status", nil)
	bobs.Header.Set("Authorization", "Bearer "+other)
	entered := func() bool {
		_, p := g.Enter(httptest.NewRecorder(), bobs)
		return p == nil
	}
	if !entered() || !g.Knows(bobs) {
		t.Fatal("bob is not let in")
	}
	write("alice " + right)
	until(t, "bob is let in still", func() bool { return !entered() })
	if g.Knows(bobs) {
		t.Error("what was begun for bob goes on")
	}
	if status, caller, _ := ask(t, g, asking{token: "Bearer " + right, from: "192.0.2.2:1"}); status != 200 || caller.Who != "alice" {
		t.Errorf("alice: %d, %q", status, caller.Who)
	}
	write("alice " + right + " and more")
	until(t, "nobody is told", func() bool {
		_, _, _ = ask(t, g, asking{token: "Bearer " + right, from: "192.0.2.2:1"})
		return strings.Contains(logged.String(), "the admin tokens cannot be used, those before stay")
	})
	if status, _, _ := ask(t, g, asking{token: "Bearer " + right, from: "192.0.2.2:1"}); status != 200 {
		t.Errorf("alice, while the file is wrong: %d", status)
	}
	if strings.Contains(logged.String(), right) || strings.Contains(logged.String(), other) {
		t.Errorf("a token is in the log:\n%s", &logged)
	}
}

// until waits for something.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestGuessing: after wrong tokens a right one is refused as well, until time has passed; others are.
func TestGuessing(t *testing.T) {
	clock := manualclock.New(0)
	var failed []netip.Addr
	g := newGuard(t, adminguard.Options{
		Tokens: []adminguard.Token{adminguard.TokenOf("alice", right)}, Clock: clock,
		LoginFailed: func(from netip.Addr, _ string) { failed = append(failed, from) },
	})
	for i := range 12 {
		status, _, w := ask(t, g, asking{token: "Bearer wrong", from: "[2001:db8::1]:1"})
		if want := map[bool]int{true: 401, false: 429}[i < 10]; status != want {
			t.Fatalf("guess %d: %d, want %d: %s", i, status, want, w.Body)
		}
	}
	if len(failed) != 10 || failed[0] != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("%v", failed)
	}
	if status, _, w := ask(t, g, asking{token: "Bearer " + right, from: "[2001:db8::ffff]:1"}); status != 429 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("the right one, from the same network: %d, %q", status, w.Header().Get("Retry-After"))
	}
	if status, _, _ := ask(t, g, asking{from: "[2001:db8::1]:1"}); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if status, _, _ := ask(t, g, asking{token: "Bearer " + right}); status != 200 {
		t.Errorf("the right one, from elsewhere: %d", status)
	}
	clock.Advance(2 * time.Second)
	for range 20 { // a right one costs nothing
		if status, _, _ := ask(t, g, asking{token: "Bearer " + right, from: "[2001:db8::1]:1"}); status != 200 {
			t.Fatalf("later: %d", status)
		}
	}
	counts := g.Counts()
	if counts.Entered != 21 || counts.Unauthorized != 11 || counts.Limited != 3 {
		t.Errorf("%+v", counts)
	}
}

// TestPathOfAFailedLoginMovesNoCursor: any client chooses the path, which is read in logs. Neither the encoded form nor raw bytes
// of it get there as what a terminal obeys.
func TestPathOfAFailedLoginMovesNoCursor(t *testing.T) {
	var told []string
	g := newGuard(t, adminguard.Options{
		Tokens: []adminguard.Token{adminguard.TokenOf("alice", right)}, LoginFailed: func(_ netip.Addr, path string) { told = append(told, path) },
	})
	for _, path := range []string{"/v1/admin/%1b%5B31m%C2%9b%E2%80%AE", "/v1/admin/\u009b31m\u202e", "/v1/status"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:7070/", nil)
		var err error
		if r.URL, err = url.ParseRequestURI(path); err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer wrong")
		_, _ = g.Enter(httptest.NewRecorder(), r)
	}
	if want := []string{"/v1/admin/%1b%5B31m%C2%9b%E2%80%AE", "/v1/admin/%C2%9B31m%E2%80%AE", "/v1/status"}; !slices.Equal(told, want) {
		t.Errorf("%q, not %q", told, want)
	}
}

// TestAsksTooOften: an address has its rate, and an IPv6 address that of its network.
func TestAsksTooOften(t *testing.T) {
	clock := manualclock.New(0)
	g := newGuard(t, adminguard.Options{Local: true, Clock: clock})
	for i := range 101 {
		status, _, _ := ask(t, g, asking{from: "[2001:db8::1]:1"})
		if want := map[bool]int{true: 200, false: 429}[i < 100]; status != want {
			t.Fatalf("request %d: %d, want %d", i, status, want)
		}
	}
	for from, want := range map[string]int{"[2001:db8::2]:1": 429, "[2001:db8:0:1::1]:1": 200, "192.0.2.1:1": 200, "not an address": 200} {
		if status, _, _ := ask(t, g, asking{from: from}); status != want {
			t.Errorf("%s: %d, want %d", from, status, want)
		}
	}
	clock.Advance(50 * time.Millisecond)
	if status, _, _ := ask(t, g, asking{from: "[2001:db8::1]:1"}); status != 200 {
		t.Errorf("later: %d", status)
	}
}

// TestTokens of files: one, or several with names.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string][]string{
		"  " + right + "\n":                            {"token"},
		"alice " + right + "\n":                        {"alice"},
		"# ours\nalice " + right + "\n\nbob\t" + other: {"alice", "bob"},
	} {
		tokens, err := adminguard.ReadTokens(write(text))
		var names []string
		for _, one := range tokens {
			names = append(names, one.Name)
		}
		if err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("%q: %q, %v", text, names, err)
		}
	}
	for text, want := range map[string]string{
		"":                                    "has 0 bytes: must have from 16 to 4096",
		"short":                               "has 5 bytes",
		"alice short":                         "has 5 bytes",
		right + "\n" + other:                  "entry 1 has 1 words",
		"alice " + right + " x":               "entry 1 has 3 words",
		"alice " + right + "\nalice " + other: `the name "alice" is there twice`,
		strings.Repeat("a", 65) + " " + right: "the name must be 1 to 64 characters",
		"alice 0123456789abcdé\u0301f":        "has the byte 0xc3: must be printable ASCII",
		strings.Repeat("x", 5000):             "has 5000 bytes",
		strings.Repeat("alice 0123456789abcdef ", 99): "has 198 words",
	} {
		if _, err := adminguard.ReadTokens(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	if _, err := adminguard.ReadTokens(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there")
	}
}
