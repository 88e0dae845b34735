package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/internal/respclient"
)

// evils are texts that mean something in header fields, logs and terminals.
var evils = []string{
	"a\r\nSet-Cookie: injected=1", "a\nSet-Cookie: injected=1", "a\r\n\r\nHTTP/1.1 200 OK\r\n\r\ninjected", "a\x00injected",
	"a\x1b[2Jinjected",
	"a\u2028injected", "a\u202einjected", "é\u00ff injected", "a\nlevel=INFO msg=injected", `a" injected="1`,
	"a\\r\\ninjected", "a, injected;q=1",
	"a\r\ntime=2030-01-01T00:00:00Z level=ERROR msg=injected",
}

const injectionConfig = `version: 1
policies:
  by-path: {limit: 1/day, key: path.user}
  by-header: {limit: 1/day, key: 'request.headers["x-name"]'}
  by-name: {limit: 1/day, key: attributes.name}
rules:
  - {name: users, match: {path: "/u/{user}"}, limits: [by-path, by-header]}
  - {name: rls, match: {protocol: rls}, limits: by-name}
`

// fieldText is what a value of a header field may have.
var fieldText = regexp.MustCompile(`^[\x20-\x7e]*$`)

// logLine is a line of the log: letters of any script may be in it, but nothing that moves what stands beside it.
var logLine = regexp.MustCompile(`^time=20\d\d-[^\pC\p{Zl}\p{Zp}]*$`)

// expectClean looks at the header of a response as it came.
func expectClean(t *testing.T, what string, h http.Header) {
	t.Helper()
	known := []string{
		"Content-Type", "Content-Length", "Date", "Connection", "Cache-Control", "Retry-After", "Ratelimit", "Ratelimit-Policy",
		"X-Content-Type-Options", "X-Weir-Problem", "Weir-Refusal", "Allow",
	}
	for name, values := range h {
		if !slices.Contains(known, name) {
			t.Errorf("%s: a field %s: %q", what, name, values)
		}
		for _, v := range values {
			// What nginx is given for the body has the text of the problem, in JSON.
			if !fieldText.MatchString(v) || strings.Contains(v, "injected") && name != "X-Weir-Problem" {
				t.Errorf("%s: %s: %q", what, name, v)
			}
		}
	}
}

// TestAttackHeaderInjection: no text of a client gets into a header field of an answer, begins a second answer, or a line of its
// own in the log.
func TestAttackHeaderInjection(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, injectionConfig)
	s := attack(t, "--config", config, "--explain-every", "1")
	plain := map[string]int{}
	for i, evil := range evils {
		quoted, err := json.Marshal(evil)
		if err != nil {
			t.Fatal(err)
		}
		q := string(quoted)
		for range 2 { // the second one is refused
			for path, body := range map[string]string{
				"/v1/check":   `{"policy":"by-name","key":` + q + `}`,
				"/v1/reserve": `{"policy":"by-name","key":` + q + `}`,
				"/v1/cancel":  `{"id":` + q + `}`,
				"/v1/decide":  `{"path":` + mustJSON(t, "/u/"+percent(evil)) + `,"headers":{"X-Name":` + q + `}}`,
			} {
				a, text := s.request("POST", path, body)
				expectClean(t, path, a.header)
				plain[fmt.Sprint(path, " ", a.status)]++
				if strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\r\n\x00\x1b") {
					t.Errorf("%s: the body has the bytes as they are: %q", path, text)
				}
			}
			a, _ := s.request("POST", "/v1/check", `{"policy":`+q+`,"key":"a"}`)
			expectClean(t, "policy", a.header)
			a, _ = s.request("POST", "/v1/decide", `{"method":`+q+`}`)
			expectClean(t, "method", a.header)
			a, _ = s.request("POST", "/v1/check", `{`+q+`:1}`)
			expectClean(t, "field", a.header)
			escaped := percent(evil + "!") // other keys than those of /v1/decide
			for path, fields := range map[string][]string{
				"/v1/auth": {
					"X-Forwarded-Method: GET", "X-Forwarded-Host: a", "X-Forwarded-Uri: /u/" + escaped,
					"X-Forwarded-For: 192.0.2.1",
				},
				"/v1/auth/nginx": {
					"X-Original-Method: GET", "X-Original-Uri: /u/" + escaped, "X-Real-Ip: 192.0.2.1",
				},
				"/v1/auth/envoy/u/" + escaped: {"X-Real-Ip: 192.0.2.1"},
				"/v1/auth/nginx?" + escaped: {
					"X-Original-Method: GET", "X-Original-Uri: " + escaped, "X-Real-Ip: " + escaped,
				},
				"/u/" + escaped:                   nil,
				"/v1/quota?policy=" + escaped:     nil,
				"/v1/admin/key?key=" + escaped:    nil,
				"/v1/admin/refusal?id=" + escaped: nil,
			} {
				a, _ := s.request("GET", path, "", fields...)
				expectClean(t, path, a.header)
				plain[fmt.Sprint("auth ", a.status)]++
			}
		}
		injectRESP(t, s, evil)
		injectGRPC(t, s, evil, i)
	}
	// The attack has got to where keys are: some were allowed and refused.
	for _, want := range []string{
		"/v1/check 200", "/v1/check 429", "/v1/decide 200", "/v1/decide 429", "auth 200", "auth 429", "auth 403",
	} {
		if plain[want] == 0 {
			t.Errorf("no answer %s in %v", want, plain)
		}
	}
	explained := 0
	for _, line := range s.expectLogLines() {
		if strings.Contains(line, "msg=explanation") && strings.Contains(line, "injected") {
			explained++
		}
	}
	if explained == 0 {
		t.Error("no key got into the log: the test looks at nothing")
	}
}

// injectRESP puts a text into commands, where a line break in an error would begin another reply.
func injectRESP(t *testing.T, s *attacked, evil string) {
	t.Helper()
	for _, command := range [][]string{
		{"WEIR.TAKE", "by-name", evil},
		{"WEIR.TAKE", evil, "a"},
		{"WEIR.TAKE", "by-name", "a", evil},
		{"WEIR.COMMIT", evil},
		{evil},
		{"CL.THROTTLE", evil, "1", "1", "60"},
		{"CL.THROTTLE", "a", evil, "1", "60"},
		{"HELLO", evil},
		{"AUTH", evil},
		{"CLIENT", evil},
		{"CLIENT", "SETNAME", evil},
		{"CLIENT", "LIST"},
		{"COMMAND", "INFO", evil},
	} {
		answer := exchangeRaw(t, s.resp, string(respclient.AppendCommand(nil, command...))+"*2\r\n$4\r\nECHO\r\n$3\r\nend\r\nQUIT\r\n")
		reader := respclient.NewReader(strings.NewReader(answer))
		first, err := reader.Read()
		if err != nil || first.Err() != nil && strings.ContainsAny(first.Value, "\r\n") {
			t.Errorf("%q: %q, error %v", command, first.Value, err)
		}
		if second, err := reader.Read(); err != nil || second.Value != "end" {
			t.Errorf("%q: a second reply: %q, error %v, in %q", command, second.Value, err, answer)
		}
	}
}

// injectGRPC puts a text into descriptors, for which the proxy is told to add header fields to responses.
func injectGRPC(t *testing.T, s *attacked, evil string, i int) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-weir-test", fmt.Sprint(i))
	evil = strings.ToValidUTF8(evil, "")
	for range 2 {
		got, err := ratelimitv3.NewRateLimitServiceClient(s.dial()).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
			Domain: evil,
			Descriptors: []*commonratelimitv3.RateLimitDescriptor{{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{
				{Key: "name", Value: evil}, {Key: evil, Value: evil},
			}}},
		})
		if err != nil {
			if !fieldText.MatchString(err.Error()) {
				t.Errorf("%q: %q", evil, err)
			}
			continue
		}
		for _, h := range got.GetResponseHeadersToAdd() {
			if !fieldText.MatchString(h.GetValue()) || strings.Contains(h.GetKey()+h.GetValue(), "injected") {
				t.Errorf("%q: header field %v", evil, h)
			}
		}
	}
}

// TestAttackLogInjection: the same for a log in JSON, whose lines are an object each.
func TestAttackLogInjection(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, injectionConfig)
	s := startServer(t, "--config", config, "--explain-every", "1", "--log-format", "json")
	s.logged(`"msg":"serving"`)
	for i, evil := range evils {
		name := fmt.Sprint(evil, i)
		path := mustJSON(t, "/u/"+percent(strings.ReplaceAll(name, "\x00", ""))) // with a zero byte it is none
		s.do(http.MethodPost, "/v1/decide", `{"path":`+path+`,"headers":{"X-Name":`+mustJSON(t, evil)+`}}`)
		line := s.logged(`"msg":"explanation"`)
		var parsed map[string]any
		if err := json.Unmarshal([]byte(line), &parsed); err != nil || parsed["msg"] != "explanation" {
			t.Errorf("%q: error %v", line, err)
		}
	}
}

func mustJSON(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// percent escapes every byte.
func percent(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}
