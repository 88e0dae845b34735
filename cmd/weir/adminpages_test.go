package main_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

const adminConfig = `version: 1
policies:
  login: {key: client.ip, limit: 1/h, lockout: {refusals: 5, within: 1m, for: 10m}}
  user: {limit: 1/h, key: attributes.user}
rules:
  - {name: sign-in, match: {path: /login}, limits: login}
  - {name: shop, match: {protocol: rls, host: shop}, limits: user}
`

const adminToken = "0123456789abcdef"

// adminServer is a server with all fronts that two operators have tokens for.
func adminServer(t *testing.T, args ...string) *allFronts {
	t.Helper()
	dir := t.TempDir()
	config, tokens := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "tokens")
	writeConfig(t, config, adminConfig)
	writeConfig(t, tokens, "# who may\nalice "+adminToken+"\nbob fedcba9876543210\n")
	return startFronts(t, nil, append([]string{"--config", config, "--admin-token-file", tokens}, args...)...)
}

// page asks for an admin page at an address.
func page(t *testing.T, client *http.Client, method, url, bearer, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Type") == "text/event-stream" {
		first := make([]byte, 64)
		n, _ := io.ReadFull(response.Body, first)
		return response.StatusCode, string(first[:n]), response.Header
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

// adminPaths are the paths of package operator, with the methods that their comments say.
func adminPaths(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("internal", "operator", "client.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range general.Specs {
			value, ok := s.(*ast.ValueSpec)
			if !ok || !strings.HasSuffix(value.Names[0].Name, "Path") {
				continue
			}
			literal, ok := value.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is no literal", value.Names[0].Name)
			}
			path, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			all[path], _, _ = strings.Cut(regexp.MustCompile(`GET|POST`).FindString(value.Comment.Text()), ":")
		}
	}
	return all
}

// TestEveryAdminPath: only those that are let in get the admin pages, except for the files of the dashboard.
func TestEveryAdminPath(t *testing.T) {
	s := adminServer(t)
	at := "http://" + s.address
	for range 2 {
		s.post("/v1/decide", `{"path":"/login","client":"192.0.2.1"}`)
	}
	var refusals operator.Refusals
	_, text, _ := page(t, nil, "GET", at+operator.RefusalsPath, adminToken, "")
	if err := json.Unmarshal([]byte(text), &refusals); err != nil || len(refusals.Refusals) != 1 {
		t.Fatalf("%v %s", err, text)
	}
	const policy = "?policy=login"
	queries := map[string]string{
		operator.KeysPath: policy, operator.KeyPath: policy + "&key=192.0.2.1", operator.ReportPath: policy,
		operator.RefusalPath: "?id=" + refusals.Refusals[0].ID, operator.SearchPath: "?word=192.0.2.1",
	}
	bodies := map[string]string{
		operator.ExplainPath: `{"path":"/login","client":"192.0.2.1"}`, operator.ReloadPath: `{}`,
		operator.OverridePath:  `{"policy":"login","key":"192.0.2.1","unlimited":true,"for":60}`,
		operator.MemberAddPath: `{"name":"n4","url":"http://127.0.0.1:1"}`, operator.MemberRemovePath: `{"name":"n4"}`,
	}
	paths := adminPaths(t)
	if len(paths) < 22 {
		t.Fatalf("%d paths", len(paths))
	}
	for path, method := range paths {
		body := ""
		if method == "POST" {
			if body = bodies[path]; body == "" {
				body = `{"policy":"login","key":"192.0.2.1"}`
			}
		}
		url := at + path + queries[path]
		allowed := 200
		if strings.HasPrefix(path, "/v1/admin/member") {
			allowed = 422 // the server is in no cluster
		}
		if code, shown, _ := page(t, nil, method, url, adminToken, body); code != allowed || shown == "" {
			t.Errorf("%s %s: %d %s", method, path, code, shown)
		}
		want := map[bool]int{true: 200, false: 401}[path == operator.UIPath]
		if code, shown, _ := page(t, nil, method, url, "", body); code != want {
			t.Errorf("%s %s without a token: %d, want %d: %s", method, path, code, want, shown)
		}
	}
	// The document describes all of them but the dashboard.
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	_, text, _ = page(t, nil, "GET", at+"/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	for path, method := range paths {
		if _, ok := document.Paths[path][strings.ToLower(method)]; !ok && path != operator.UIPath {
			t.Errorf("/openapi.json has no %s %s", method, path)
		}
	}
	if document.Paths["/v1/check"] == nil {
		t.Error("/openapi.json has no /v1/check")
	}
}

// TestAdminOfItsOwnListener: with --admin the pages of operators are there, and --http says where.
func TestAdminOfItsOwnListener(t *testing.T) {
	s := adminServer(t, "--admin", "127.0.0.1:0", "--metrics-public")
	found := regexp.MustCompile(` admin=(\S+)`).FindStringSubmatch(s.lines[len(s.lines)-1])
	if found == nil {
		t.Fatal(s.lines)
	}
	clients, operators := "http://"+s.address, "http://"+found[1]
	for _, path := range []string{
		"/v1/status", "/v1/explain", "/v1/reload", "/v1/quota", "/v1/admin/overview", "/v1/admin/none", "/metrics", "/ui", "/ui/", "/ui/none",
	} {
		code, text, _ := page(t, nil, "GET", clients+path, adminToken, "")
		if code != 404 || !strings.Contains(text, path+" is at --admin "+found[1]) {
			t.Errorf("%s of clients: %d %s", path, code, text)
		}
	}
	for path, want := range map[string]int{
		"/v1/status": 200, "/v1/admin/overview": 200, "/metrics": 200, "/ui/": 200, "/healthz": 200, "/openapi.json": 200, "/": 200,
		"/v1/check": 404, "/v1/auth": 404,
	} {
		if code, text, _ := page(t, nil, "GET", operators+path, adminToken, ""); code != want {
			t.Errorf("%s of operators: %d, want %d: %s", path, code, want, text)
		}
	}
	if code, _, _ := page(t, nil, "POST", operators+"/v1/check", adminToken, `{"policy":"login","key":"a"}`); code != 404 {
		t.Errorf("a check of operators: %d", code)
	}
	if code, _, _ := page(t, nil, "GET", operators+"/metrics", "", ""); code != 200 {
		t.Errorf("/metrics without a token: %d", code)
	}
	if code, _, _ := page(t, nil, "GET", operators+"/v1/status", "", ""); code != 401 {
		t.Errorf("/v1/status without a token: %d", code)
	}
	if code, _, _ := page(t, nil, "POST", clients+"/v1/decide", "", `{"path":"/login","client":"192.0.2.1"}`); code != 200 {
		t.Errorf("a client: %d", code)
	}
	// An open stream does not hold up the end.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, operators+operator.EventsPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	s.signal(syscall.SIGTERM)
	text, err := io.ReadAll(stream.Body)
	if err != nil || !strings.HasSuffix(string(text), "event: end\ndata: {}\n\n") {
		t.Errorf("%v %.200s", err, text)
	}
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("%v: %s", state, strings.Join(s.lines, "\n"))
	}
}

// TestDashboardForBrowsers: a browser that asks for / gets the dashboard, and others the text.
func TestDashboardForBrowsers(t *testing.T) {
	s := startServer(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for accept, want := range map[string]int{"text/html,application/xhtml+xml;q=0.9": 302, "*/*": 200, "": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want || want == 302 && response.Header.Get("Location") != "/ui/" {
			t.Errorf("%q: %d %s", accept, response.StatusCode, response.Header.Get("Location"))
		}
	}
}

// TestAdminClientCertificate: a certificate of --admin-client-ca lets in, by its name, and no other one does.
func TestAdminClientCertificate(t *testing.T) {
	dir := t.TempDir()
	own, colleague, stranger := fronttest.SelfSigned(t, "weir"), fronttest.SelfSigned(t, "carol"), fronttest.SelfSigned(t, "stranger")
	for name, data := range map[string][]byte{"cert": own.Text, "key": own.Key, "ca": colleague.Text} {
		writeConfig(t, filepath.Join(dir, name), string(data))
	}
	s := startServer(t, "--tls-cert", filepath.Join(dir, "cert"), "--tls-key", filepath.Join(dir, "key"), "--http", "0.0.0.0:0",
		"--admin-client-ca", filepath.Join(dir, "ca"))
	at := strings.Replace("https://"+s.address, "[::]", "127.0.0.1", 1)
	with := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: own.Pool, Certificates: certificates, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		}}
	}
	if code, _, _ := page(t, with(), "POST", at+"/v1/check", "", `{"key":"a"}`); code != 200 {
		t.Errorf("a check: %d", code)
	}
	for name, client := range map[string]*http.Client{"nobody": with(), "a stranger": with(stranger.Pair)} {
		if code, text, _ := page(t, client, "GET", at+"/v1/status", "", ""); code != 403 || !strings.Contains(text, "--admin-client-ca") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	carol := with(colleague.Pair)
	if code, text, _ := page(t, carol, "POST", at+operator.UnlockPath, "", `{"policy":"default","key":"a","reason":"why"}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if _, text, _ := page(t, carol, "GET", at+operator.AuditPath, "", ""); !strings.Contains(text, `"who":"carol","from":"127.0.0.1","action":"unlock"`) {
		t.Error(text)
	}
	got := weir(t, nil, "serve", "--admin-client-ca", filepath.Join(dir, "ca"))
	if got.status != 2 || !strings.Contains(got.stderr, "--admin-client-ca needs --tls-cert and --tls-key") {
		t.Errorf("%d %s", got.status, got.stderr)
	}
}

// TestAuditLogFile: the file has the author, the time and the reason of each change, and of each that was refused; without it
// the server does not start.
func TestAuditLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	s := adminServer(t, "--audit-log", path)
	at := "http://" + s.address
	for _, c := range []struct{ path, bearer, body string }{
		{operator.UnlockPath, adminToken, `{"policy":"login","key":"192.0.2.1","reason":"a customer"}`},
		{operator.OverridePath, "fedcba9876543210", `{"policy":"login","key":"192.0.2.1","limits":{"1h":"50/h"},"for":600,"reason":"launch"}`},
		{operator.ReloadPath, adminToken, `{"reason":"more"}`},
		{"/v1/reload", adminToken, ""},
	} {
		if code, text, _ := page(t, nil, "POST", at+c.path, c.bearer, c.body); code != 200 {
			t.Errorf("%s: %d %s", c.path, code, text)
		}
	}
	// Ten at once, and one more each two seconds, which pass while a machine stands still.
	begun, failed := time.Now(), 0
	eventually(t, "wrong tokens are not looked at any more", func() bool {
		code, _, _ := page(t, nil, "GET", at+"/v1/status", "wrong", "")
		if code == 401 {
			failed++
		}
		return code == 429
	})
	if most := 10 + int(time.Since(begun)/(2*time.Second)); failed < 10 || failed > most {
		t.Errorf("%d wrong tokens were looked at, want 10 to %d", failed, most)
	}
	s.signal(syscall.SIGTERM)
	s.wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var e operator.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if since := time.Since(e.Time); since < 0 || since > time.Hour {
			t.Errorf("%s", line)
		}
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%s|%s|%s", e.Action, e.Who, e.From, e.Key, e.Detail, e.Reason, e.Result))
	}
	want := []string{
		"start|server|||||ok",
		"unlock|alice|127.0.0.1|192.0.2.1||a customer|begun",
		"unlock|alice|127.0.0.1|192.0.2.1||a customer|it was not locked out",
		"override|bob|127.0.0.1|192.0.2.1|50/h, burst 50 for 10m|launch|begun",
		"override|bob|127.0.0.1|192.0.2.1|50/h, burst 50 for 10m|launch|ok",
		"reload|alice|127.0.0.1|||more|begun",
		"reload|alice|127.0.0.1||version 2, 0 changes|more|ok",
		"reload|alice|127.0.0.1||||begun",
		"reload|alice|127.0.0.1||version 3, 0 changes||ok",
	}
	for range failed {
		want = append(want, "login-failed||127.0.0.1||/v1/status||the token is unknown")
	}
	want = append(want, "stop|server|||||ok")
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	refused := weir(t, nil, "serve", "--audit-log", filepath.Join(t.TempDir(), "none", "audit.log"))
	if refused.status != 2 || !strings.Contains(refused.stderr, "weir: --audit-log: ") {
		t.Errorf("%d %s", refused.status, refused.stderr)
	}
}

// TestFromTheRefusalToTheReason: whichever front has refused, the client is told an ID, and by that an operator finds the rule, the key
// and the numbers.
func TestFromTheRefusalToTheReason(t *testing.T) {
	s := adminServer(t)
	at := "http://" + s.address
	why := func(id string) (r operator.Refusal) {
		t.Helper()
		code, text, _ := page(t, nil, "GET", at+operator.RefusalPath+"?id="+id, adminToken, "")
		if err := json.Unmarshal([]byte(text), &r); err != nil || code != 200 || len(r.Limits) != 1 {
			t.Errorf("%q: %d %s", id, code, text)
			r.Limits = make([]operator.RefusedLimit, 1)
		}
		return r
	}
	ids := map[string]bool{}
	for path, body := range map[string]string{
		"/v1/decide":  `{"method":"POST","path":"/login","client":"192.0.2.1"}`,
		"/v1/check":   `{"policy":"login","key":"192.0.2.2"}`,
		"/v1/reserve": `{"policy":"login","key":"192.0.2.3"}`,
		"/v1/batch":   `{"checks":[{"policy":"login","key":"192.0.2.4"}]}`,
	} {
		if code, text, header := page(t, nil, "POST", at+path, "", body); code != 200 || header.Get("Weir-Refusal") != "" {
			t.Errorf("%s: %d %s %q", path, code, text, header.Get("Weir-Refusal"))
		}
		code, text, header := page(t, nil, "POST", at+path, "", body)
		id := header.Get("Weir-Refusal")
		r := why(id)
		if l := r.Limits[0]; code != 429 || ids[id] || l.Policy != "login" || !strings.Contains(body, `"`+l.Key+`"`) || l.Holds != "1/h, burst 1" ||
			l.Reason != "limited" || l.RetryAfter < 3500 || r.Version != 1 {
			t.Errorf("%s: %d %s %+v", path, code, text, r)
		}
		ids[id] = true
		if path == "/v1/decide" && (r.Method != http.MethodPost || r.Path != "/login" || r.Limits[0].Rule != "sign-in") {
			t.Errorf("%+v", r)
		}
	}
	for n := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/v1/auth", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-For": "192.0.2.9", "X-Forwarded-Uri": "/login", "X-Forwarded-Method": "POST", "X-Forwarded-Host": "example.com",
		} {
			r.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		id := response.Header.Get("Weir-Refusal")
		if (id != "") != (n == 1) {
			t.Fatalf("forward auth %d: %d %q", n, response.StatusCode, id)
		}
		if n == 1 {
			if r := why(id); r.Host != "example.com" || r.Limits[0].Key != "192.0.2.9" {
				t.Errorf("%+v", r)
			}
		}
	}
	conn := s.dial()
	for n := range 2 {
		told, err := descriptor(t.Context(), conn, "shop", "user", "alice")
		if err != nil {
			t.Fatal(err)
		}
		id := ""
		for _, h := range told.GetResponseHeadersToAdd() {
			if h.GetKey() == "weir-refusal" {
				id = h.GetValue()
			}
		}
		if over := told.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT; over != (n == 1) || over != (id != "") {
			t.Fatalf("rate limit service %d: %v", n, told)
		}
		if n == 1 {
			if r := why(id); r.Limits[0].Key != "alice" || r.Limits[0].Rule != "shop" ||
				told.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["refusal"].GetStringValue() != id {
				t.Errorf("%+v %v", r, told)
			}
		}
	}
	// The log has one of each policy in a second, and no key as it is.
	s.signal(syscall.SIGTERM)
	s.wait()
	log := strings.Join(slices.DeleteFunc(s.lines, func(l string) bool { return !strings.Contains(l, "refused") }), "\n")
	if strings.Contains(log, "192.0.2.") || !strings.Contains(log, "policy=login") {
		t.Error(log)
	}
}

func TestAdminMisuse(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	writeConfig(t, short, "short\n")
	for args, want := range map[string]string{
		"--admin 127.0.0.1:7070":                    `--admin "127.0.0.1:7070": is the address of --http as well`,
		"--audit-log-size 5":                        "--audit-log-size needs --audit-log",
		"--audit-log-files 5":                       "--audit-log-files needs --audit-log",
		"--audit-log-size 0 --audit-log x":          "must be a whole number from 1 to 100000",
		"--admin-rate fast":                         "must be a rate such as 20/s",
		"--refusal-log often":                       "must be a rate such as 1/s, or off",
		"--refusal-log off --refusal-log-keys none": "--refusal-log-keys cannot be combined with --refusal-log off",
		"--refusal-log-keys all":                    `--refusal-log-keys "all"`,
		"--refusal-log-secret-file " + short:        "has 5 bytes: must have from 16 to 1024",
		"--refusal-log-secret-file " + dir + "/no":  "no such file",
		"--admin-token-file " + short:               "weir: --admin-token-file: " + short + " has 5 bytes: must have from 16 to 4096",
		"--admin-token-file " + short + "none":      "no such file or directory; openssl rand -hex 24 makes a token",
		"--audit-log " + dir:                        "is not a regular file",
		"--otlp-interval 5s":                        "--otlp-interval needs --otlp-endpoint",
		"--http-connections 0":                      "must be a whole number from 1 to 1000000",
		"--http-connections-per-address -1":         "must be a whole number from 0 to 1000000",
	} {
		got := weir(t, nil, append([]string{"serve", "--http", "127.0.0.1:7070"}, strings.Fields(args)...)...)
		if got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d %s", args, got.status, got.stderr)
		}
	}
}
