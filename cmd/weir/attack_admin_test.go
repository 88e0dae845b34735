package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// guarded are all pages for operators, and the method that each answers.
var guarded = map[string]string{
	"/v1/status": "GET", "/v1/explain": "POST", "/v1/reload": "POST", "/v1/quota": "GET", "/v1/quota/adjust": "POST",
	"/v1/quota/adjustments": "GET",

	operator.OverviewPath: "GET", operator.EventsPath: "GET", operator.PoliciesPath: "GET", operator.RulesPath: "GET", operator.KeysPath: "GET",
	operator.KeyPath: "GET", operator.LockoutsPath: "GET", operator.OverridesPath: "GET", operator.RefusalsPath: "GET",
	operator.RefusalPath: "GET", operator.ReportPath: "GET", operator.ConfigurationPath: "GET", operator.ReplicasPath: "GET",
	operator.AuditPath: "GET", operator.ExplainPath: "POST", operator.UnlockPath: "POST", operator.OverridePath: "POST",
	operator.RestorePath: "POST", operator.ResetPath: "POST", operator.ReloadPath: "POST", operator.MetricsPath: "GET",
}

// secretName is in the configuration of a server whose admin pages are attacked: no answer may have it.
const secretName = "nobodys-business"

const attackedConfig = `version: 1
policies:
  ` + secretName + `: {limit: 1/day, key: client.ip}
rules:
  - {name: ` + secretName + `, limits: ` + secretName + `}
`

const (
	rightToken = "the-right-token-0123456789"
	liftLimit  = `{"policy":"` + secretName + `","key":"203.0.113.9","unlimited":true,"for":3600,"reason":"attack"}`
)

// attackAdmin starts a server whose operators have a token, unless there shall be none.
// TestAttackNameThatLeadsHere: a page in a browser on the machine, whose name was made to lead to it, spends no permits and learns
// nothing. Addresses, localhost and names that the operator has given are answered.
func TestAttackNameThatLeadsHere(t *testing.T) {
	t.Parallel()
	s := attack(t, "--http-names", "weir.internal,Weir.Example")
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example:7070": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "localhosts": 403,
		"[::1%25evil]": 403, "": 403, "weir.internal.evil.example": 403,
		"localhost": 200, "LOCALHOST:7070": 200, "127.0.0.1": 200, "[::1]:7070": 200, "192.0.2.1": 200, "weir.internal": 200,
		"WEIR.example:80": 200, "weir.internal.": 200,
	} {
		for page, body := range map[string]string{
			"/v1/check": `{"key":"a"}`, "/v1/batch": `{"checks":[{"key":"a"}]}`, "/v1/reserve": `{"key":"a","expires_in":1}`,
		} {
			if a, text := s.request("POST", page, body, "Host: "+host); a.status != want && (want == 403 || a.status != 429) {
				t.Errorf("%s as %q: %d %.100s, want %d", page, host, a.status, text, want)
			}
		}
	}
	s.end()
}

func attackAdmin(t *testing.T, token bool, args ...string) *attacked {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "weir.yaml")
	writeConfig(t, config, attackedConfig)
	args = append(args, "--config", config, "--admin-rate", "1000000/s")
	if token {
		file := filepath.Join(dir, "token")
		if err := os.WriteFile(file, []byte("night-shift "+rightToken+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--admin-token-file", file)
	}
	return attack(t, args...)
}

// denied asks for a page in a way that must not work, and expects one of the answers.
func (s *attacked) denied(t *testing.T, method, target string, statuses []int, fields ...string) {
	t.Helper()
	a, text := s.request(method, target, liftLimit, fields...)
	if !slices.Contains(statuses, a.status) || strings.Contains(text, secretName) || strings.Contains(text, rightToken) {
		t.Errorf("%s %s, %q: %d %.300s", method, target, fields, a.status, text)
	}
	for name, values := range a.header {
		if name == "Access-Control-Allow-Origin" || strings.Contains(fmt.Sprint(values), secretName) {
			t.Errorf("%s %s: %s: %q", method, target, name, values)
		}
	}
}

// expectUnchanged expects that nothing was changed, and that the pages with these fields let in no caller.
func (s *attacked) expectUnchanged(t *testing.T, fields ...string) {
	t.Helper()
	_, text := s.request("GET", operator.OverridesPath, "", fields...)
	_, status := s.request("GET", "/v1/status", "", fields...)
	if text != "[]\n" || !strings.Contains(status, secretName) || !strings.Contains(status, `"reloads":0,`) {
		t.Errorf("something was changed: %s%s", text, status)
	}
}

// TestAttackAdminWithoutToken asks for each admin page in all ways but the right one.
func TestAttackAdminWithoutToken(t *testing.T) {
	t.Parallel()
	s := attackAdmin(t, true)
	bearer := "Authorization: Bearer " + rightToken
	for path, method := range guarded {
		for _, m := range []string{method, "HEAD", "PUT", "OPTIONS", "TRACE", "CONNECT", "get"} {
			s.denied(t, m, path, []int{400, 401, 405})
		}
		for _, target := range []string{
			path + "?token=" + rightToken, path + "?access_token=" + rightToken, path + "?authorization=Bearer%20" + rightToken,
			"http://127.0.0.1" + path, "http://admin:" + rightToken + "@localhost" + path,
		} {
			s.denied(t, method, target, []int{401})
		}
		for _, fields := range [][]string{
			{"Authorization: " + rightToken},
			{"Authorization: Basic " + rightToken},
			{bearer, "Authorization: Bearer wrong"},
			{"Authorization: Bearer wrong", bearer},
			{"Authorization: Bearer\t" + rightToken},
			{"Authorization: Token " + rightToken},
			{"Cookie: token=" + rightToken + "; Authorization=Bearer " + rightToken},
			{"X-Authorization: Bearer " + rightToken},
			{"Proxy-Authorization: Bearer " + rightToken},
			{"Authorization: bearer"},
			{"X-Api-Key: " + rightToken},
			{"X-HTTP-Method-Override: GET"},
			{"X-Original-URL: /healthz"},
			{"X-Rewrite-URL: /healthz"},
			{"Host: localhost"},
			{"X-Forwarded-For: 127.0.0.1"},
			{"Origin: http://" + s.address, "Sec-Fetch-Site: same-origin"},
		} {
			s.denied(t, method, path, []int{401}, fields...)
		}
		// A page that a browser has loaded from elsewhere has no use of the token, if it gets at it.
		if method == "POST" {
			s.denied(t, method, path, []int{403}, bearer, "Origin: https://evil.example")
			s.denied(t, method, path, []int{403}, bearer, "Sec-Fetch-Site: cross-site")
		}
	}
	s.expectUnchanged(t, bearer)
	// Wrong tokens are counted: after ten of them a right token gets the same answer as a wrong one.
	wrong := []string{
		rightToken[:len(rightToken)-1], rightToken + "0", strings.ToUpper(rightToken), "", " ", "night-shift",
		"night-shift " + rightToken,
		rightToken + "\x00", rightToken + ",", rightToken + ", Basic YTpi", strings.Repeat("a", 8000),
	}
	paths := make([]string, 0, len(guarded))
	for path := range guarded {
		paths = append(paths, path)
	}
	begun := time.Now()
	for i := range 200 {
		path := paths[i%len(paths)]
		s.denied(t, guarded[path], path, []int{400, 401, 429}, "Authorization: Bearer "+wrong[i%len(wrong)])
	}
	// One each two seconds comes back, which may be between two requests.
	eventually(t, "the right one is refused as well", func() bool {
		a, _ := s.request("GET", "/v1/status", "", bearer)
		if a.status == 200 {
			s.denied(t, "GET", "/v1/status", []int{401, 429}, "Authorization: Bearer "+wrong[0])
		}
		return a.status == 429
	})
	most := 10 + int(time.Since(begun)/(2*time.Second))
	failed := 0
	for _, line := range s.end() {
		if strings.Contains(line, rightToken) || strings.Contains(line, rightToken[:len(rightToken)-1]) {
			t.Errorf("a token is in the log: %s", line)
		}
		if strings.Contains(line, "127.0.0.1") && strings.Contains(line, "login") {
			failed++
		}
	}
	if failed < 10 || failed > most {
		t.Errorf("%d failed logins are in the log, want 10 to %d", failed, most)
	}
}

// TestAttackAdminFromBrowser: without a token the pages are for those on the same machine, but not for the pages of others that
// their browsers show, under whatever name.
func TestAttackAdminFromBrowser(t *testing.T) {
	t.Parallel()
	s := attackAdmin(t, false)
	for path, method := range guarded {
		for _, host := range []string{
			"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1.nip.io:80", "",
			"localhost@evil.example", "localhost.", "127.1", "2130706433", "0x7f000001", "[::1%evil.example]:80", "fe80::1%.evil.example",
			"localhost:80:80", "]127.0.0.1[",
		} {
			s.denied(t, method, path, []int{400, 403}, "Host: "+host)
		}
		if method == "POST" {
			for _, fields := range [][]string{
				{"Origin: https://evil.example"},
				{"Origin: null"},
				{"Sec-Fetch-Site: cross-site"},
				{"Sec-Fetch-Site: same-site"},
				{"Origin: http://localhost:1"},
			} {
				s.denied(t, method, path, []int{403}, fields...)
			}
		} else {
			s.denied(t, "POST", path, []int{403, 405}, "Origin: https://evil.example")
		}
		s.denied(t, "OPTIONS", path, []int{403, 405}, "Origin: https://evil.example", "Access-Control-Request-Method: POST")
		s.denied(t, "TRACE", path, []int{403, 405})
	}
	// What is asked for without a change is answered, and the browser does not let the page of another origin read it.
	a, _ := s.request("GET", "/v1/status", "", "Origin: https://evil.example")
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("a page of another origin may read the status: %s: %q", name, a.header[name])
		}
	}
	// Forms of other origins need no permission, and cannot have this type.
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		got := exchangeRaw(t, s.address, fmt.Sprintf(
			"POST %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			operator.OverridePath, s.address, kind, len(liftLimit), liftLimit))
		if !strings.HasPrefix(got, "HTTP/1.1 415 ") {
			t.Errorf("%s: %.200s", kind, got)
		}
	}
	s.expectUnchanged(t)
	s.end()
}

// TestAttackRevokedToken: a token that is taken out of the file is refused, and a stream that it has begun ends, while the
// server goes on.
func TestAttackRevokedToken(t *testing.T) {
	t.Parallel()
	const gone = "the-token-of-who-is-gone"
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("night-shift " + rightToken + "\ngone " + gone + "\n")
	s := attackAdmin(t, false, "--admin-token-file", file)
	listening := connect(t, s.address)
	_, err := fmt.Fprintf(listening, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n",
		operator.EventsPath, gone)
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(listening)
	if line, err := events.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("%q, error %v", line, err)
	}
	write("night-shift " + rightToken + "\n")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		a, _ := s.request("GET", operator.OverviewPath, "", "Authorization: Bearer "+gone)
		if a.status == 401 {
			break
		}
		if a.status != 200 || time.Now().After(deadline) {
			t.Fatalf("a token that is gone: %d", a.status)
		}
	}
	if _, err := io.Copy(io.Discard, events); err != nil { // until it ends, or connect has had enough
		t.Errorf("the stream of whose token is gone: %v", err)
	}
	if a, text := s.request("GET", operator.OverviewPath, "", "Authorization: Bearer "+rightToken); a.status != 200 {
		t.Errorf("the other one: %d %s", a.status, text)
	}
	for _, line := range s.end() {
		if strings.Contains(line, gone) || strings.Contains(line, rightToken) {
			t.Errorf("a token is in the log: %s", line)
		}
	}
}

// TestAttackAdminFromNetwork: a server that others reach answers no admin page without a token.
func TestAttackAdminFromNetwork(t *testing.T) {
	t.Parallel()
	s := attackAdmin(t, false, "--http", "0.0.0.0:0")
	s.address = strings.Replace(strings.Replace(s.address, "[::]", "127.0.0.1", 1), "0.0.0.0", "127.0.0.1", 1)
	for path, method := range guarded {
		s.denied(t, method, path, []int{403}, "Host: localhost")
	}
	if a, _ := s.request("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("/healthz: %d", a.status)
	}
	s.end()
}

// TestAttackAuditLog: whatever is said to be the reason of a change, it is one line of the audit log, and tells who it was.
func TestAttackAuditLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit")
	s := attackAdmin(t, true, "--audit-log", file)
	type change struct{ key, reason string }
	var done []change
	for _, evil := range evils {
		for _, c := range []change{{evil, "night"}, {"alice", evil}} {
			a, text := s.request("POST", operator.OverridePath,
				`{"policy":"`+secretName+`","key":`+mustJSON(t, c.key)+`,"unlimited":true,"for":3600,`+
					`"reason":`+mustJSON(t, c.reason)+`}`,
				"Authorization: Bearer "+rightToken)
			expectClean(t, operator.OverridePath, a.header)
			switch a.status {
			case 200:
				done = append(done, c)
			case 400: // what does not print is no reason
			default:
				t.Errorf("%q: %d %s", c, a.status, text)
			}
		}
	}
	if len(done) < len(evils) {
		t.Errorf("only %d changes were made", len(done))
	}
	s.expectLogLines()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, changes, begun := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), 0, ""
	for _, line := range written {
		var entry operator.AuditEntry
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if entry.Who == "server" { // it says when it starts and stops
			continue
		}
		if entry.Who != "night-shift" || changes == len(done) ||
			operator.KeyOf(entry.Key) != done[changes].key || entry.Reason != done[changes].reason {
			t.Errorf("change %d: %q", changes, line)
		}
		said := fmt.Sprint(entry.Action, entry.Policy, entry.Key, entry.Detail, entry.Reason)
		if entry.Result == adminguard.AuditBegun { // what becomes of it is the next line
			begun = said
			continue
		}
		if begun != said {
			t.Errorf("change %d was not written before it was made: %q", changes, line)
		}
		begun = ""
		changes++
	}
	if changes != len(done) {
		t.Errorf("%d lines of %d changes", changes, len(done))
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may read the audit log: %v, error %v", info.Mode(), err)
	}
}

// TestAttackFullAuditLog: when the audit log cannot be written, no change is made, not even the first.
func TestAttackFullAuditLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "audit")
	s := attackAdmin(t, true, "--audit-log", file, "--audit-log-size", "1")
	bearer := "Authorization: Bearer " + rightToken
	long := mustJSON(t, strings.Repeat("\x01", 1024)) // six times as long in JSON
	left := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return 1<<20 - info.Size()
	}
	reset := func(key string) {
		t.Helper()
		a, text := s.request("POST", operator.ResetPath, `{"policy":"`+secretName+`","key":`+key+`}`, bearer)
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, text)
		}
	}
	for left() > 20_000 {
		reset(long)
	}
	for left() > 1000 {
		reset(`"a"`)
	}
	// A file in the place of the directory: the next file cannot be begun.
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	override := `{"policy":"` + secretName + `","key":` + long + `,"unlimited":true,"for":3600,"reason":"attack"}`
	for range 2 {
		a, text := s.request("POST", operator.OverridePath, override, bearer)
		if a.status != 503 || !strings.Contains(text, "the audit log cannot be written") {
			t.Errorf("%d %s", a.status, text)
		}
	}
	s.expectUnchanged(t, bearer)
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if a, text := s.request("POST", operator.OverridePath, override, bearer); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, text)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "entries are missing") {
		t.Errorf("%.300s, error %v", text, err)
	}
	s.end()
}
