package operator_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server wants one
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// serve starts a server, and answers a client of it.
func serve(t *testing.T, o operator.ClientOptions, h http.HandlerFunc) *operator.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o.Server = server.URL + "/"
	return client(t, o)
}

func client(t *testing.T, o operator.ClientOptions) *operator.Client {
	t.Helper()
	c, err := operator.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func problem(w http.ResponseWriter, status int, detail, more string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"detail":%q%s}`, status, detail, more)
}

func TestClientAsks(t *testing.T) {
	c := serve(t, operator.ClientOptions{Token: "0123456789abcdef"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "Bearer 0123456789abcdef":
			problem(w, http.StatusUnauthorized, "no token", "")
		case r.URL.Path == operator.KeyPath && r.Method == http.MethodGet && r.URL.RawQuery == "key=a%26b&policy=p+q":
			fmt.Fprint(w, `{"policy":"p q","key":"a&b"}`)
		case r.URL.Path == operator.UnlockPath && r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/json" &&
			string(body) == `{"policy":"p","key":"k","reason":"r"}`:
			fmt.Fprint(w, `{"changed":true}`)
		default:
			problem(w, http.StatusNotFound, "what: "+r.URL.String(), "")
		}
	})
	var k operator.Key
	err := c.Get(t.Context(), operator.KeyPath, url.Values{"policy": {"p q"}, "key": {"a&b"}}, &k)
	if err != nil || k.Policy != "p q" || k.Key != "a&b" {
		t.Errorf("%+v, %v", k, err)
	}
	var changed operator.Changed
	err = c.Post(t.Context(), operator.UnlockPath, operator.Change{Policy: "p", Key: "k", Reason: "r"}, &changed)
	if err != nil || !changed.Changed {
		t.Errorf("%+v, %v", changed, err)
	}
	var raw json.RawMessage
	if err = c.Get(t.Context(), operator.KeyPath, url.Values{"policy": {"p q"}, "key": {"a&b"}}, &raw); err != nil || raw[0] != '{' {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestClientSaysWhatToDo: each error says what the operator can do about it.
func TestClientSaysWhatToDo(t *testing.T) {
	old := "there is no such page; there are POST /v1/check, POST /v1/decide"
	for _, c := range []struct {
		token  string
		status int
		answer func(w http.ResponseWriter)
		want   string
	}{
		{"", 401, func(w http.ResponseWriter) { problem(w, 401, "x", "") }, "give --token-file, with the file of its --admin-token-file"},
		{"0123456789abcdef", 401, func(w http.ResponseWriter) { problem(w, 401, "x", "") }, "does not know the token of --token-file"},
		{"", 403, func(w http.ResponseWriter) { problem(w, 403, "only on loopback", "") }, "only on loopback; start it with --admin 127.0.0.1:7071, "},
		{"", 403, func(w http.ResponseWriter) { problem(w, 403, "Host \"x\": must be", "") }, "must be; ask it at an address such as"},
		{"", 404, func(w http.ResponseWriter) { problem(w, 404, old, "") }, "it has no /v1/admin/key: is it of an older version"},
		{
			"", 404, func(w http.ResponseWriter) { problem(w, 404, "admin pages are at http://127.0.0.1:9000", "") },
			": admin pages are at http://127.0.0.1:9000",
		},
		{"", 429, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "3")
			problem(w, 429, "too many", "")
		}, "too many (retry after 3 s)"},
		{"", 422, func(w http.ResponseWriter) { problem(w, 422, "not used", `,"mistakes":["weir: a:1:2: b"]`) }, "not used\n  a:1:2: b"},
		{"", 404, func(w http.ResponseWriter) { problem(w, 404, "no such policy", `,"policies":["a","b"]`) }, "no such policy; there are: a, b"},
		{"", 400, func(w http.ResponseWriter) { problem(w, 400, "key: too long", `,"field":"key"`) }, ": key: too long"},
		{"", 0, func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, "/v1/admin/key is answered with status 502 Bad Gateway"},
		{"", 0, func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusFound)
		}, "/v1/admin/key is answered with status 302 Found"},
		{"", 0, func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, `/v1/admin/key is answered with "<html>"`},
		{"", 0, func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "{")
		}, "ends too early"},
	} {
		s := serve(t, operator.ClientOptions{Token: c.token}, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
		var k operator.Key
		err := s.Get(t.Context(), operator.KeyPath, url.Values{"policy": {"p"}}, &k)
		refused, ok := errors.AsType[*operator.Refused](err)
		if err == nil || !strings.HasPrefix(err.Error(), "weir: "+s.Server()) || !strings.Contains(err.Error(), c.want) ||
			ok != (c.status != 0) || ok && refused.Status != c.status {
			t.Errorf("%v, want %d %s", err, c.status, c.want)
		}
	}
}

func TestClientCannotReach(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	certificate := fronttest.SelfSigned(t, "weir")
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate.Pair}, ClientAuth: tls.RequireAnyClientCert}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	other := fronttest.SelfSigned(t, "other")
	strict := httptest.NewUnstartedServer(http.NotFoundHandler())
	strict.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: secure.TLS.Certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: certificate.Pool,
	}
	strict.Config.ErrorLog = secure.Config.ErrorLog
	strict.StartTLS()
	defer strict.Close()
	const closed = "http://127.0.0.1:1"             // the system gives this port to no listener by itself
	unknown := strings.Repeat("w", 64) + ".invalid" // one letter more than a name may have, so that no server is asked for it
	for _, c := range []struct {
		o    operator.ClientOptions
		want string
	}{
		{operator.ClientOptions{Server: closed}, "not reachable: nothing listens there; ask weir serve at --http or --admin, weir proxy at --admin"},
		{operator.ClientOptions{Server: "http://" + unknown + ":7070"}, `is known of the host "` + unknown + `"`},
		{operator.ClientOptions{Server: "https" + strings.TrimPrefix(plain.URL, "http")}, "does not speak TLS: is its URL http://?"},
		{operator.ClientOptions{Server: "http" + strings.TrimPrefix(secure.URL, "https")}, "speaks TLS: its URL is https://"},
		{operator.ClientOptions{Server: secure.URL}, "unknown authority: give its certificate by --tls-ca"},
		{
			operator.ClientOptions{Server: secure.URL, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: certificate.Pool}},
			"wants to see the certificate of a client",
		},
		{
			operator.ClientOptions{Server: secure.URL, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: other.Pool}},
			"of another authority than those of --tls-ca",
		},
		{
			operator.ClientOptions{Server: strict.URL, TLS: &tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: certificate.Pool, Certificates: []tls.Certificate{other.Pair},
			}},
			"the certificate of --tls-cert",
		},
		{
			operator.ClientOptions{Server: secure.URL, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: certificate.Pool, ServerName: "other.example"}},
			"shows a certificate for another name",
		},
	} {
		var v operator.Overview
		err := client(t, c.o).Get(t.Context(), operator.OverviewPath, nil, &v)
		if err == nil || !strings.HasPrefix(err.Error(), "weir: "+c.o.Server) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for server, o := range map[string]operator.ClientOptions{
		"weir": {}, "ftp://x": {}, "http://u:p@x": {}, "http://x?y=z": {}, "": {},
		"http://x": {TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate.Pair}}},
	} {
		o.Server = server
		if _, err := operator.NewClient(o); err == nil || !strings.HasPrefix(err.Error(), "weir: server ") {
			t.Errorf("%s: %v", server, err)
		}
	}
}

func TestClientWithACertificate(t *testing.T) {
	certificate := fronttest.SelfSigned(t, "weir")
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"version":%q}`, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate.Pair}, ClientAuth: tls.RequireAnyClientCert}
	secure.StartTLS()
	defer secure.Close()
	o := operator.ClientOptions{Server: secure.URL, TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: certificate.Pool, Certificates: []tls.Certificate{certificate.Pair},
	}}
	var v operator.Overview
	if err := client(t, o).Get(t.Context(), operator.OverviewPath, nil, &v); err != nil {
		t.Error(err)
	}
}

// TestClientIsPatientForAWhile: a server that says nothing is given up, and so is asking when the caller has gone.
func TestClientIsPatientForAWhile(t *testing.T) {
	gone := make(chan struct{})
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == operator.EventsPath {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		}
		if r.URL.Path == operator.PoliciesPath { // it begins to answer
			_, _ = io.WriteString(w, "[")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	}
	timeout := 20 * time.Millisecond
	c := serve(t, operator.ClientOptions{Timeout: timeout}, h)
	var v operator.Overview
	if err := c.Get(t.Context(), operator.OverviewPath, nil, &v); err == nil || !strings.Contains(err.Error(), "has not answered within 20ms") {
		t.Error(err)
	}
	var policies []operator.Policy
	if err := c.Get(t.Context(), operator.PoliciesPath, nil, &policies); err == nil ||
		!strings.Contains(err.Error(), "has not answered within 20ms") {
		t.Error(err)
	}
	for { // until the server begins to answer before the timeout
		err := c.Events(t.Context(), func(operator.Event) bool { return true })
		if err != nil && strings.Contains(err.Error(), "has said nothing for "+timeout.String()) {
			break
		}
		if err == nil || !strings.Contains(err.Error(), "has not answered within "+timeout.String()) || timeout > time.Minute {
			t.Fatal(err)
		}
		timeout *= 2
		c = serve(t, operator.ClientOptions{Timeout: timeout}, h)
	}
	t.Cleanup(func() { close(gone) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Get(ended, operator.OverviewPath, nil, &v); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.Events(ended, func(operator.Event) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	c := serve(t, operator.ClientOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		fmt.Fprint(w, ": hello\n\nevent: overview\nid: 7\nretry: 100\ndata: {\"a\":1}\n\nevent:none\n\r\nevent:two\r\ndata:x\r\ndata:  y\r\ndata\r\n\r\n"+
			"event: long\ndata: "+long+"\n\ndata: unnamed\n\nevent: cut\ndata: off\n")
	})
	var got []string
	err := c.Events(t.Context(), func(e operator.Event) bool {
		got = append(got, e.Name+"="+string(e.Data))
		return true
	})
	want := []string{`overview={"a":1}`, "two=x\n y\n", "long=" + long, "=unnamed"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%.300q", got)
	}
	if err == nil || !strings.Contains(err.Error(), "has ended the stream of events") {
		t.Error(err)
	}
	n := 0
	if err := c.Events(t.Context(), func(operator.Event) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	for want, h := range map[string]http.HandlerFunc{
		"give --token-file": func(w http.ResponseWriter, _ *http.Request) { problem(w, 401, "x", "") },
		"Content-Type \"text/html\"": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "x")
		},
		"an event has more than 16 MiB": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 17 << 4 {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		err := serve(t, operator.ClientOptions{}, h).Events(t.Context(), func(operator.Event) bool { return true })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
