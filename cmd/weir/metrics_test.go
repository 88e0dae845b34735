package main_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// scrape returns the metrics of a server, by name and labels as they are written.
func (s *allFronts) scrape(client *http.Client) map[string]float64 {
	s.t.Helper()
	code, text, _ := page(s.t, client, http.MethodGet, "https://"+s.address+operator.MetricsPath, adminToken, "")
	if code != http.StatusOK {
		s.t.Fatalf("%d %s", code, text)
	}
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = value
	}
	return all
}

// TestMetricsOfAServer does to a server what is counted, and finds it in its metrics: each source is asked, and none in the
// place of another.
func TestMetricsOfAServer(t *testing.T) {
	dir := t.TempDir()
	own := fronttest.SelfSigned(t, "weir")
	files := map[string]string{
		"weir.yaml": adminConfig, "token": adminToken, "password": "open sesame\n", "cert.pem": string(own.Text), "key.pem": string(own.Key),
	}
	for name, text := range files {
		writeConfig(t, filepath.Join(dir, name), text)
	}
	trusting := &tls.Config{RootCAs: own.Pool, MinVersion: tls.VersionTLS12}
	s := startFronts(t, trusting, "--config", filepath.Join(dir, "weir.yaml"), "--admin-token-file", filepath.Join(dir, "token"),
		"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"),
		"--resp-password-file", filepath.Join(dir, "password"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	defer client.CloseIdleConnections()
	at := "https://" + s.address
	ask := func(method, path, bearer, body string, want int) {
		t.Helper()
		if code, text, _ := page(t, client, method, at+path, bearer, body); code != want {
			t.Errorf("%s %s: %d %s", method, path, code, text)
		}
	}

	// The JSON API: one granted, two refused, one that is free of limits, one reserved, three that are wrong.
	for _, want := range []int{200, 429, 429} {
		ask("POST", "/v1/decide", "", `{"path":"/login","client":"192.0.2.1"}`, want)
	}
	ask("POST", "/v1/decide", "", `{"path":"/"}`, 200)
	ask("POST", "/v1/reserve", "", `{"policy":"user","key":"held"}`, 200)
	for range 3 {
		ask("POST", "/v1/check", "", `{`, 400)
	}
	// Servers that ask: one passes, two are refused, three say nothing of their clients.
	for n, want := range []int{200, 429, 429, 400, 400, 400} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/v1/auth", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			for name, value := range map[string]string{
				"X-Forwarded-For": "192.0.2.2", "X-Forwarded-Uri": "/login", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "example.com",
			} {
				r.Header.Set(name, value)
			}
		}
		answered, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answered.Body)
		_ = answered.Body.Close()
		if answered.StatusCode != want {
			t.Errorf("forward auth %d: %d", n, answered.StatusCode)
		}
	}
	// Operators: a change, a reload, a stream of events that goes on, and four who have no token.
	ask("POST", operator.UnlockPath, adminToken, `{"policy":"login","key":"a","reason":"why"}`, 200)
	ask("POST", operator.ReloadPath, adminToken, `{"reason":"why"}`, 200)
	for range 4 {
		ask("GET", operator.OverviewPath, "", "", 401)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+operator.EventsPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	events, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	// RESP: three wrong passwords, the right one, one granted and two refused by CL.THROTTLE; and one who breaks the protocol.
	speak := func(lines ...string) {
		t.Helper()
		conn, err := tls.Dial("tcp", s.resp, trusting) //nolint:noctx // it has a deadline
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		replies := bufio.NewReader(conn)
		for i := 0; i < len(lines); i += 2 {
			if _, err := fmt.Fprintf(conn, "%s\r\n", lines[i]); err != nil {
				t.Fatal(err)
			}
			for _, first := range lines[i+1] { // of the lines of the reply
				if line, err := replies.ReadString('\n'); err != nil || !strings.HasPrefix(line, string(first)) {
					t.Fatalf("%s: %q %v", lines[i], line, err)
				}
			}
		}
	}
	const wrong, throttle = "AUTH guessed", "CL.THROTTLE key 0 1 3600"
	speak(wrong, "-", wrong, "-", wrong, "-", `AUTH "open sesame"`, "+", throttle, "*:::::", throttle, "*:::::", throttle, "*:::::")
	speak("*x", "-")
	// gRPC: one within the limit, two over it, three without a domain.
	conn := s.dial()
	for range 3 {
		if _, err := descriptor(t.Context(), conn, "shop", "user", "alice"); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		if _, err := descriptor(t.Context(), conn, "", "user", "alice"); err == nil {
			t.Error("a call without a domain is answered")
		}
	}

	got := s.scrape(client)
	for name, want := range map[string]float64{
		`weir_requests_total{result="unlimited"}`:                               1,
		`weir_policy_requests_total{policy="login",result="allowed"}`:           2,
		`weir_policy_requests_total{policy="login",result="refused"}`:           4,
		`weir_policy_requests_total{policy="user",result="allowed"}`:            2,
		`weir_policy_requests_total{policy="user",result="refused"}`:            2,
		`weir_rule_matched_total{rule="sign-in"}`:                               6,
		`weir_rule_matched_total{rule="shop"}`:                                  3,
		`weir_refusals_total{result="noted"}`:                                   6,
		`weir_refusals_total{result="missed"}`:                                  0,
		`weir_check_rejected_total`:                                             3,
		`weir_check_reservations`:                                               1,
		`weir_forward_auth_requests_total{result="allowed"}`:                    1,
		`weir_forward_auth_requests_total{result="refused"}`:                    2,
		`weir_forward_auth_requests_total{result="rejected"}`:                   3,
		`weir_admin_requests_total{result="authorized"}`:                        4, // and that for the metrics
		`weir_admin_requests_total{result="unauthorized"}`:                      4,
		`weir_admin_requests_total{result="limited"}`:                           0,
		`weir_admin_changes_total`:                                              2,
		`weir_admin_event_streams`:                                              1,
		`weir_audit_log_errors_total`:                                           0,
		`weir_config_version`:                                                   2,
		`weir_config_reloads_total{result="loaded"}`:                            1,
		`weir_config_reloads_total{result="refused"}`:                           0,
		`weir_config_last_attempt_successful`:                                   1,
		`weir_resp_connections_total`:                                           2,
		`weir_resp_wrong_passwords_total`:                                       3,
		`weir_resp_protocol_errors_total`:                                       1,
		`weir_resp_timeouts_total`:                                              0,
		`weir_resp_throttle_requests_total{result="allowed"}`:                   1,
		`weir_resp_throttle_requests_total{result="refused"}`:                   2,
		`weir_resp_throttle_keys`:                                               1,
		`weir_front_connections{front="grpc"}`:                                  1,
		`weir_front_connections_refused_total{front="http"}`:                    0,
		`weir_front_connections_evicted_total{front="http"}`:                    0,
		`weir_grpc_calls_total{method="should_rate_limit",result="ok"}`:         1,
		`weir_grpc_calls_total{method="should_rate_limit",result="over_limit"}`: 2,
		`weir_grpc_calls_total{method="should_rate_limit",result="failed"}`:     3,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (%t), not %v", name, value, ok, want)
		}
	}
	if n := got[`weir_front_connections{front="http"}`]; n < 1 {
		t.Errorf("%v connections of HTTP", n)
	}
	if n := got[`weir_resp_commands_total`]; n < 7 {
		t.Errorf("%v commands of RESP", n)
	}
	end := time.Unix(int64(got[`weir_certificate_expiry_timestamp_seconds{certificate="fronts"}`]), 0)
	if left := time.Until(end); left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("the certificate is valid for another %v", left)
	}
	for name := range got {
		for _, key := range []string{"192.0.2.", "alice", "held"} {
			if strings.Contains(name, key) {
				t.Errorf("%s has a key", name)
			}
		}
	}
}
