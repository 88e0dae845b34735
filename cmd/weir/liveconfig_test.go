package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirhq/weir/internal/race"
)

// perKey is a configuration with one policy, whose burst is so slow to come back that it does not while a test runs.
func perKey(burst int) string {
	return fmt.Sprintf(`version: 1
policies:
  default: {limit: 1/h, burst: %d, key: client.ip}
rules:
  - name: everybody
    limits: default
`, burst)
}

// writeConfig writes a configuration as it is meant to be done: in one step.
func writeConfig(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// startConfigured starts weir serve with a configuration, and returns its path.
func startConfigured(t *testing.T, text string, args ...string) (*server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, text)
	s := startServer(t, append([]string{"--config", path}, args...)...)
	s.logged("msg=serving")
	return s, path
}

// limit is the burst of the default policy as a new key sees it.
func (s *server) limit(key string) string {
	s.t.Helper()
	_, body := s.check(fmt.Sprintf(`{"key":%q,"cost":0}`, key))
	_, rest, _ := strings.Cut(body, `"limit":`)
	limit, _, _ := strings.Cut(rest, ",")
	return limit
}

type serveStatus struct {
	File           string           `json:"file"`
	Version        uint64           `json:"version"`
	Reloads        uint64           `json:"reloads"`
	ReloadsRefused uint64           `json:"reloads_refused"`
	LastError      string           `json:"last_error"`
	LastCause      string           `json:"last_cause"`
	Mistakes       []string         `json:"mistakes"`
	Requests       uint64           `json:"requests"`
	Refused        uint64           `json:"refused"`
	Policies       []map[string]any `json:"policies"`
	Rules          []map[string]any `json:"rules"`
}

// status is what GET /v1/status answers.
func (s *server) status() serveStatus {
	s.t.Helper()
	var status serveStatus
	r, body := s.do(http.MethodGet, "/v1/status", "")
	if err := json.Unmarshal([]byte(body), &status); err != nil || r.status != 200 {
		s.t.Fatalf("%v: %d %s", err, r.status, body)
	}
	return status
}

func TestServeConfig(t *testing.T) {
	s, path := startConfigured(t, `version: 1
policies:
  per-client: {limit: 1/h, burst: 3, key: client.ip}
  login:
    limits:
      - {name: s, rate: 10/s}
      - {name: h, rate: 2/h}
    key: 'request.headers["x-user"]'
  trial: {limit: 1/h, key: client.ip, mode: shadow}
rules:
  - name: login
    match: {method: POST, path: "/login/{how}", host: example.com}
    when: attributes["kind"] == "human"
    limits: login
  - name: health
    match: {path: /healthz}
    exempt: true
  - name: everybody
    limits: [per-client, trial]
`)
	request := `{"method":"POST","host":"example.com","path":"/login/a","query":"x=1","client":"192.0.2.1",` +
		`"headers":{"x-user":["alice"]},"attributes":{"kind":"human"}}`
	r, body := s.do(http.MethodPost, "/v1/decide", request)
	if r.status != 200 || !strings.HasPrefix(body, `{"allowed":true,"reason":"none","policy":"login/h","limit":2,"remaining":1,`) ||
		!strings.Contains(body, `"decisions":[{"allowed":true,"reason":"none","policy":"login/s",`) ||
		!strings.Contains(body, `"rule":"login","key":"alice","cost":1}`) {
		t.Errorf("%d %s", r.status, body)
	}
	if got := r.header.Get("Ratelimit"); !strings.HasPrefix(got, `"login/h";r=1;t=`) || strings.Count(got, ";r=") != 3 {
		t.Errorf("RateLimit: %s", got)
	}
	// A check by name and a request that a rule matches have the same state.
	r, body = s.check(`{"policy":"login","key":"alice"}`)
	if r.status != 200 || !strings.Contains(body, `"policy":"login/h","limit":2,"remaining":0`) {
		t.Errorf("%d %s", r.status, body)
	}
	r, body = s.do(http.MethodPost, "/v1/decide", request)
	if r.status != 429 || !strings.HasPrefix(body, `{"allowed":false,"reason":"limited","policy":"login/h",`) || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, body)
	}
	// Nothing was taken by what was refused.
	_, body = s.check(`{"policy":"per-client","key":"192.0.2.1","cost":0}`)
	if !strings.Contains(body, `"remaining":2,`) {
		t.Errorf("per-client: %s", body)
	}
	r, body = s.do(http.MethodPost, "/v1/decide", `{"path":"/healthz"}`)
	if r.status != 200 || body != `{"allowed":true,"reason":"none","policy":null,"limit":null,"remaining":null,"retry_after":0,`+
		`"reset_after":0,"exempt":true,"binding":null,"decisions":[]}`+"\n" {
		t.Errorf("%d %s", r.status, body)
	}
	r, body = s.check(`{"policy":"trial","key":"x","cost":5}`)
	if r.status != 200 || !strings.Contains(body, `"policy":"trial","limit":null,"remaining":null`) {
		t.Errorf("in shadow: %d %s", r.status, body)
	}
	for ask, want := range map[string]string{
		`{"key":"x"}`:                   `must be one of: per-client, login, trial`,
		`{"policy":"nobody","key":"x"}`: `policy \"nobody\": there is no such policy`,
	} {
		if got, text := s.check(ask); got.status != 404 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", ask, got.status, text)
		}
	}
	r, body = s.do(http.MethodPost, "/v1/explain", request)
	if r.status != 200 || !strings.Contains(body, `{"name":"health",`) || !strings.Contains(body, `"condition":"path is /login/a, rule wants /healthz"`) ||
		strings.Contains(body, "weir-check") || !strings.Contains(body, `"role":"shadow"`) {
		t.Errorf("%d %s", r.status, body)
	}
	r, body = s.do(http.MethodGet, "/", "")
	if r.status != 200 || !strings.Contains(body, "trial: 1/h, burst 1 (shadow)") ||
		!strings.Contains(body, "http://"+s.address+"/v1/decide") || strings.Contains(body, "alice") {
		t.Errorf("%d %s", r.status, body)
	}
	status := s.status()
	if status.File != path || status.Version != 1 || len(status.Rules) != 3 || len(status.Policies) != 3 || status.Refused != 1 {
		t.Errorf("%+v", status)
	}
}

// TestDecideProbes: a request that costs 0 is answered as the same one without a cost would be, and takes nothing. Nor do checks
// of 0 permits, and they cause no lockout either.
func TestDecideProbes(t *testing.T) {
	s, _ := startConfigured(t, `version: 1
policies:
  per-client: {limit: 2/h, key: client.ip, lockout: {refusals: 3, within: 1h, for: 1h}}
  costly: {limit: 5/h, key: client.ip, cost: 3}
rules:
  - {name: costly, match: {path: /costly}, limits: costly, final: true}
  - {name: limited, match: {path: /limited}, limits: per-client}
`)
	expect := func(path, body string, status int, want string) {
		t.Helper()
		if r, got := s.do(http.MethodPost, path, body); r.status != status || !strings.HasPrefix(got, want) {
			t.Errorf("%s %s: %d %s\nwant %d %s", path, body, r.status, got, status, want)
		}
	}
	const limited, probe = `{"path":"/limited","client":"192.0.2.1"}`, `{"path":"/limited","client":"192.0.2.1","cost":0}`
	for range 5 {
		expect("/v1/decide", probe, 200, `{"allowed":true,"reason":"none","policy":"per-client","limit":2,"remaining":2,`)
	}
	expect("/v1/decide", limited, 200, `{"allowed":true,"reason":"none","policy":"per-client","limit":2,"remaining":1,`)
	expect("/v1/decide", limited, 200, `{"allowed":true,"reason":"none","policy":"per-client","limit":2,"remaining":0,`)
	for range 5 {
		expect("/v1/decide", probe, 429, `{"allowed":false,"reason":"limited","policy":"per-client","limit":2,"remaining":0,`)
		expect("/v1/check", `{"policy":"per-client","key":"192.0.2.1","cost":0}`, 429, `{"allowed":false,"reason":"limited",`)
	}
	expect("/v1/decide", limited, 429, `{"allowed":false,"reason":"limited"`)
	const costly = `{"path":"/costly","client":"192.0.2.1"`
	expect("/v1/decide", costly+`,"cost":0}`, 200, `{"allowed":true,"reason":"none","policy":"costly","limit":5,"remaining":5,`)
	expect("/v1/decide", costly+`}`, 200, `{"allowed":true,"reason":"none","policy":"costly","limit":5,"remaining":2,`)
	expect("/v1/decide", costly+`,"cost":0}`, 429, `{"allowed":false,"reason":"limited","policy":"costly","limit":5,"remaining":2,`)
	for _, body := range []string{`{"path":"/else"}`, `{"path":"/else","cost":0}`} {
		expect("/v1/decide", body, 200, `{"allowed":true,"reason":"none","policy":null,"limit":null,"remaining":null,"retry_after":0,`)
	}
	expect("/v1/explain", probe, 200, `{"allowed":false,`)
}

func TestServeForwardAuth(t *testing.T) {
	s, _ := startConfigured(t, perKey(1))
	ask := func(path, client string) (answer, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/a", "X-Forwarded-Host": "example.com",
			"X-Forwarded-For": client, "X-Original-Method": "GET", "X-Original-Uri": "/a", "X-Real-Ip": client,
		} {
			r.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer{response.StatusCode, response.Header}, string(body)
	}
	for _, c := range []struct {
		path, client string
		want         int
	}{
		{"/v1/auth", "192.0.2.1", 200},
		{"/v1/auth", "192.0.2.1", 429},
		{"/v1/auth/nginx", "192.0.2.1", 403},
		{"/v1/auth/envoy/a", "192.0.2.1", 429},
		{"/v1/auth/envoy/a", "192.0.2.2", 200},
		{"/v1/auth/nginx", "no", 400},
	} {
		r, body := ask(c.path, c.client)
		if r.status != c.want || r.status > 400 && (r.header.Get("Retry-After") == "" || r.header.Get("Ratelimit") == "" ||
			!strings.Contains(body, `"violated-policies":["default"]`)) {
			t.Errorf("%s for %s: %d %v %s, want %d", c.path, c.client, r.status, r.header, body, c.want)
		}
	}
	if _, body := s.do(http.MethodGet, "/v1/status", ""); !strings.Contains(body, `"forward_auth":{"allowed":2,"refused":3,"rejected":1}`) {
		t.Error(body)
	}
}

// TestReloadBySignal: SIGHUP reads the file again, and counts are kept.
func TestReloadBySignal(t *testing.T) {
	s, path := startConfigured(t, perKey(3))
	for range 3 {
		s.check(`{"key":"alice"}`)
	}
	s.signal(syscall.SIGHUP)
	s.logged(`msg="configuration loaded" file=` + path + ` cause=SIGHUP version=2 changes=0`)
	if r, body := s.check(`{"key":"alice"}`); r.status != 429 {
		t.Errorf("after SIGHUP: %d %s", r.status, body)
	}
	s.signal(syscall.SIGHUP)
	s.logged("cause=SIGHUP version=3 changes=0")
	if got := s.status(); got.Reloads != 2 || got.LastCause != "SIGHUP" {
		t.Errorf("%+v", got)
	}
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status.ExitCode() != 0 || !strings.Contains(s.lines[len(s.lines)-1], "reloads=2 reloads_refused=0") {
		t.Errorf("%v %s", status, s.lines[len(s.lines)-1])
	}
}

// TestHangupWithoutFile: SIGHUP ends no server that has no file to read again, as scripts that rotate logs send it to services.
func TestHangupWithoutFile(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--limit", "3/h")
	s.signal(syscall.SIGHUP)
	s.logged("a signal to reload is ignored")
	if r, body := s.check(`{"key":"alice"}`); r.status != 200 {
		t.Errorf("after SIGHUP: %d %s", r.status, body)
	}
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status.ExitCode() != 0 {
		t.Error(status)
	}
}

// TestReloadByAPI: the answer says what has changed or what is wrong.
func TestReloadByAPI(t *testing.T) {
	s, path := startConfigured(t, perKey(3))
	if r, body := s.do(http.MethodPost, "/v1/reload", ""); r.status != 200 || body != `{"version":2,"changes":0}`+"\n" {
		t.Errorf("%d %s", r.status, body)
	}
	writeConfig(t, path, "version: 1\npolicies:\n  default: {limt: 1/h}\nrules:\n  - {name: a, limits: nobody}\n")
	s.logged("configuration refused")
	first, second := s.logged("msg=mistake"), s.logged("msg=mistake")
	r, body := s.do(http.MethodPost, "/v1/reload", "")
	if r.status != 422 || strings.Count(body, path+":3:") < 1 || strings.Count(body, path+":5:") < 1 {
		t.Errorf("%d %s", r.status, body)
	}
	if !strings.Contains(first+second, path+":3:") || !strings.Contains(first+second, "limt") {
		t.Errorf("%s\n%s", first, second)
	}
	status := s.status()
	if status.ReloadsRefused != 2 || status.Version != 2 || len(status.Mistakes) < 2 || !strings.HasPrefix(status.LastError, path+":3:") {
		t.Errorf("%+v", status)
	}
	if got := s.limit("new"); got != "3" {
		t.Errorf("the limit is %s", got)
	}
}

// TestReloadOfNoFile: what takes the place of the file and is none, such as a named pipe that has no writer, is refused at once, in
// every way to reload, and ends none of them.
func TestReloadOfNoFile(t *testing.T) {
	t.Parallel()
	s, path := startConfigured(t, perKey(1))
	for n, place := range []struct {
		what string
		make func(path string) error
	}{
		{"a named pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a device", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := place.make(path); err != nil {
			t.Fatal(err)
		}
		why := "it is " + place.what + ": must be a regular file"
		s.logged(why)
		s.signal(syscall.SIGHUP)
		s.logged("cause=SIGHUP")
		s.logged(why)
		if r, body := s.do(http.MethodPost, "/v1/reload", ""); r.status != 422 || !strings.Contains(body, why) {
			t.Errorf("%d %s", r.status, body)
		}
		if got := s.status(); !strings.Contains(got.LastError, why) {
			t.Errorf("%+v", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		writeConfig(t, path, perKey(n+2))
		s.logged("msg=changed path=policies.default.limits.")
		if got := s.limit("x"); got != fmt.Sprint(n+2) {
			t.Errorf("the limit is %s, want %d", got, n+2)
		}
	}
}

// TestReloadOfMountedVolume: a volume of Kubernetes is changed by swapping a symbolic link to its directory.
func TestReloadOfMountedVolume(t *testing.T) {
	mount := t.TempDir()
	version := func(n int) {
		t.Helper()
		dir := filepath.Join(mount, fmt.Sprintf("..2026_%d", n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		writeConfig(t, filepath.Join(dir, "weir.yaml"), perKey(n))
		next := filepath.Join(mount, "..data_tmp")
		if err := os.Symlink(filepath.Base(dir), next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Join(mount, fmt.Sprintf("..2026_%d", n-1)))
	}
	version(1)
	path := filepath.Join(mount, "weir.yaml")
	if err := os.Symlink(filepath.Join("..data", "weir.yaml"), path); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--config", path)
	s.logged("msg=serving")
	for n := 2; n <= 4; n++ {
		version(n)
		if line := s.logged("msg=changed path=policies.default.limits."); !strings.Contains(line, fmt.Sprintf(`new="1/h, burst %d" state=kept`, n)) {
			t.Error(line)
		}
		if got := s.limit("x"); got != fmt.Sprint(n) {
			t.Errorf("the limit is %s, want %d", got, n)
		}
	}
	if got := s.status(); got.ReloadsRefused != 0 || got.Reloads != 3 {
		t.Errorf("%+v", got)
	}
}

// TestReloadOfFileInPieces: of a file that is written in pieces, no piece is put in force that is none.
func TestReloadOfFileInPieces(t *testing.T) {
	s, path := startConfigured(t, perKey(3))
	text := perKey(7)
	cut := strings.Index(text, "key: client.ip")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text[:cut]); err != nil {
		t.Fatal(err)
	}
	s.logged("configuration refused")
	if status := s.status(); status.ReloadsRefused == 0 || !strings.HasPrefix(status.LastError, path+":") || status.LastCause != "file" {
		t.Errorf("%+v", status)
	}
	if got := s.limit("x"); got != "3" {
		t.Errorf("half a file: the limit is %s", got)
	}
	if _, err := f.WriteString(text[cut:]); err != nil {
		t.Fatal(err)
	}
	s.logged("configuration loaded")
	if got, status := s.limit("y"), s.status(); got != "7" || status.LastError != "" || len(status.Mistakes) > 0 {
		t.Errorf("the limit is %s, %+v", got, status)
	}
}

// TestReloadOfDeletedFile: without the file everything stays, and it is found again.
func TestReloadOfDeletedFile(t *testing.T) {
	t.Parallel()
	s, path := startConfigured(t, perKey(3))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if line := s.logged("msg=mistake"); !strings.Contains(line, "no such file") {
		t.Error(line)
	}
	if got := s.limit("x"); got != "3" {
		t.Errorf("the limit is %s", got)
	}
	writeConfig(t, path, perKey(5))
	s.logged("configuration loaded")
	if got := s.limit("y"); got != "5" {
		t.Errorf("the limit is %s", got)
	}
	// Its directory as well.
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	s.logged("configuration refused")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, path, perKey(6))
	s.logged("configuration loaded")
	if got := s.limit("z"); got != "6" {
		t.Errorf("the limit is %s", got)
	}
}

// TestReloadUnderLoad: while the configuration is replaced again and again, no request fails, and what was taken stays taken.
func TestReloadUnderLoad(t *testing.T) {
	const clients, budget = 8, 1_000_000_000
	reloads := 1000
	if race.Enabled {
		reloads = 50
	}
	text := func(n int) string {
		return fmt.Sprintf(`version: 1
policies:
  budget: {limits: [{algorithm: fixed-window, rate: %d/365d}]}
  other: {limit: %d/h, key: client.ip, candidate: {limit: 1/h}}
rules:
  - {name: everybody, limits: [budget, other]}
  - {name: r%d, match: {path: "/r%d/{id}"}, when: 'request.method == "GET"', limits: other}
`, budget, 1_000_000+n, n%3, n)
	}
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, text(0))
	s := startServer(t, "--config", path, "--admin-rate", "10000/s", "--log-level", "error") // the log is not read
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	post := func(page, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+page, strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return 0, err.Error()
		}
		return response.StatusCode, string(text)
	}
	var (
		stop    atomic.Bool
		granted atomic.Int64
		group   sync.WaitGroup
	)
	for i := range clients {
		group.Go(func() {
			for !stop.Load() {
				if status, body := post("/v1/decide", fmt.Sprintf(`{"path":"/","client":"192.0.2.%d"}`, i)); status != 200 {
					t.Errorf("%d %s", status, body)
					return
				}
				granted.Add(1)
			}
		})
	}
	for n := 1; n <= reloads && !t.Failed(); n++ {
		writeConfig(t, path, text(n))
		if status, body := post("/v1/reload", ""); status != 200 {
			t.Errorf("reload %d: %d %s", n, status, body)
		}
	}
	stop.Store(true)
	group.Wait()
	_, body := post("/v1/decide", `{"path":"/","client":"192.0.2.200"}`)
	granted.Add(1)
	left := `"policy":"budget","limit":` + fmt.Sprint(budget) + `,"remaining":`
	_, rest, _ := strings.Cut(body, left)
	remaining, _, _ := strings.Cut(rest, ",")
	if remaining != fmt.Sprint(budget-granted.Load()) {
		t.Errorf("%d were granted, and %q is left of %d:\n%s", granted.Load(), remaining, int64(budget), body)
	}
	if status := s.status(); status.Reloads < uint64(reloads) || status.ReloadsRefused != 0 || status.Refused != 0 ||
		status.Requests < uint64(granted.Load()) {
		t.Errorf("%d granted, %+v", granted.Load(), status)
	}
}

// TestEnvironmentIsNotTold: what a configuration has from the environment is told nowhere.
func TestEnvironmentIsNotTold(t *testing.T) {
	const secret, other = "hunter2-hunter2", "correct-horse"
	t.Setenv("WEIR_TEST_SECRET", secret)
	t.Setenv("WEIR_TEST_OTHER", other)
	text := func(name, more string) string {
		return perKey(3) + fmt.Sprintf("  - {name: inside, match: {header: {X-Token: \"${%s}\"}}, limits: default}\n", name) + more
	}
	s, path := startConfigured(t, text("WEIR_TEST_SECRET", ""), "--explain-every", "1")
	s.do(http.MethodPost, "/v1/decide", `{"path":"/","client":"192.0.2.1"}`)
	said := s.logged("msg=explanation")
	_, body := s.do(http.MethodPost, "/v1/explain", `{"path":"/","client":"192.0.2.1","headers":{"x-token":"x"}}`)
	said += body
	writeConfig(t, path, text("WEIR_TEST_OTHER", ""))
	said += s.logged("msg=changed")
	writeConfig(t, path, text("WEIR_TEST_SECRET", "  - {name: \"${WEIR_TEST_SECRET}\", limits: \"${WEIR_TEST_OTHER}\", when: \"${WEIR_TEST_SECRET}\"}\n"))
	s.logged("configuration refused")
	_, body = s.do(http.MethodGet, "/v1/status", "")
	said += body
	s.signal(syscall.SIGTERM)
	s.wait()
	said += strings.Join(s.lines, "\n")
	if strings.Contains(said, secret) || strings.Contains(said, other) {
		t.Errorf("told: %s", said)
	}
	if !strings.Contains(said, "${WEIR_TEST_SECRET}") {
		t.Errorf("it is not even named: %s", said)
	}
}

// TestExplainEvery: one in so many requests is explained in the log.
func TestExplainEvery(t *testing.T) {
	s, _ := startConfigured(t, perKey(3), "--explain-every", "2")
	for range 4 {
		s.do(http.MethodPost, "/v1/decide", `{"path":"/","client":"192.0.2.1"}`)
	}
	s.signal(syscall.SIGTERM)
	s.wait()
	log := strings.Join(s.lines, "\n")
	if n := strings.Count(log, "msg=explanation"); n != 2 || !strings.Contains(log, `\"key\":\"192.0.2.1\"`) {
		t.Errorf("%d explanations:\n%s", n, log)
	}
}

// TestAdminPages: the state is for those who run the server.
func TestAdminPages(t *testing.T) {
	page := func(s *server, method, path string, fields ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			if name == "Host" {
				r.Host = value
			}
			r.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	pages := map[string]string{"/v1/status": http.MethodGet, "/v1/explain": http.MethodPost, "/v1/reload": http.MethodPost}
	local, _ := startConfigured(t, perKey(3))
	public, _ := startConfigured(t, perKey(3), "--http", "0.0.0.0:0")
	public.address = strings.Replace(public.address, "[::]", "127.0.0.1", 1)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("  0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded, _ := startConfigured(t, perKey(3), "--admin-token-file", token)
	for path, method := range pages {
		for _, c := range []struct {
			what   string
			s      *server
			fields []string
			want   int
		}{
			{"on loopback", local, nil, 200},
			{"under the name localhost", local, []string{"Host: localhost:7070"}, 200},
			{"under the name of a page", local, []string{"Host: evil.example:7070"}, 403},
			{"on all addresses", public, nil, 403},
			{"without the token", guarded, nil, 401},
			{"with another token", guarded, []string{"Authorization: Bearer 0123456789abcdeg"}, 401},
			{"without its kind", guarded, []string{"Authorization: 0123456789abcdef"}, 401},
			{"with the token", guarded, []string{"Authorization: Bearer 0123456789abcdef"}, 200},
		} {
			if got := page(c.s, method, path, c.fields...); got != c.want {
				t.Errorf("%s %s: %d, want %d", path, c.what, got, c.want)
			}
		}
	}
	if got := page(local, http.MethodPost, "/v1/reload", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"); got != 403 {
		t.Errorf("/v1/reload by a page of elsewhere: %d", got)
	}
	for path, want := range map[string]int{"/v1/reload": 405, "/v1/explain": 405, "/v1/nothing": 404} {
		if got := page(local, http.MethodGet, path); got != want {
			t.Errorf("GET %s: %d, want %d", path, got, want)
		}
	}
	// Without a configuration there is nothing to reload.
	plain := startServer(t)
	for path, want := range map[string]int{"/v1/reload": 409, "/v1/explain": 200, "/v1/status": 200} {
		if got := page(plain, pages[path], path); got != want {
			t.Errorf("%s without a configuration: %d, want %d", path, got, want)
		}
	}
}

func TestServeConfigMisuse(t *testing.T) {
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, "version: 2\npolicies: {a: {limit: fast}}\nrules: [{name: r, limits: b}]\n")
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--config " + config + " --limit 1/s":               "--limit cannot be combined with --config or --ratelimit-config, which have the limits",
		"--trust-proxy 10.0.0.0/8":                          "--trust-proxy needs --config",
		"--explain-every 5":                                 "--explain-every needs --config",
		"--config " + config + " --trust-proxy example.com": `--trust-proxy "example.com": must be addresses or networks`,
		"--config " + config + " --auth-refusal-status 500": `--auth-refusal-status "500": must be a whole number from 400 to 499`,
		"--config " + config + " --explain-every -1":        `must be a whole number from 0 to 1000000000`,
	} {
		got := weir(t, nil, append([]string{"serve"}, strings.Fields(args)...)...)
		if got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d %s", args, got.status, got.stderr)
		}
	}
	// All mistakes of a file are told at once.
	got := weir(t, nil, "serve", "--config", config)
	for _, want := range []string{config + ":1:", config + ":2:", config + ":3:"} {
		if got.status != 2 || strings.Count(got.stderr, want) != 1 {
			t.Errorf("%d: no %s in %s", got.status, want, got.stderr)
		}
	}
	got = weir(t, nil, "serve", "--config", config, "--admin-token-file", short)
	if got.status != 2 || !strings.Contains(got.stderr, "has 5 bytes: must have from 16 to 4096") {
		t.Errorf("%d %s", got.status, got.stderr)
	}
}

// TestMissingConfiguration: all commands end with 2 if the configuration is not there, and name a page with an example.
func TestMissingConfiguration(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, args := range [][]string{
		{"serve", "--config", missing},
		{"config", "check", missing},
		{"config", "explain", missing},
		{"replay", "--config", missing, "../../examples/access.log"},
		{"test", missing},
	} {
		got := weir(t, nil, args...)
		if got.status != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "weir: ") || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, missing+": no such file or directory; docs/") {
			t.Errorf("%q: %d %s%s", args, got.status, got.stdout, got.stderr)
		}
	}
}
