package proxy_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// TestHostsThatAreNone has hosts come by HTTP/2, of which the server checks none: the upstream would get them in Punycode, without
// their zone, or none at all, so that limits go by another host than it does. So do services that make a URL of an encoded one: they
// decode it, and take letters for others. Of a host with a comma, which is in X-Forwarded-Host as well, services take one part.
func TestHostsThatAreNone(t *testing.T) {
	pair, pool := certificate(t)
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	})
	raw, _ := p.raw(t, "")
	conn := tls.Client(raw, &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{http2.NextProtoTLS}})
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	stream := uint32(1)
	ask := func(host string) (status string) {
		t.Helper()
		err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: stream, BlockFragment: fieldBlock(":method", "GET", ":scheme", "https", ":path", "/", ":authority", host),
			EndStream: true, EndHeaders: true,
		})
		for stream += 2; err == nil; {
			var f http2.Frame
			if f, err = framer.ReadFrame(); err != nil {
				break
			}
			if h, ok := f.(*http2.MetaHeadersFrame); ok {
				return h.PseudoValue("status")
			}
		}
		t.Fatal(err)
		return ""
	}
	for _, host := range []string{
		"bücher.example", "api.example.com/", "api.example.com/../x", "a b", "api.example.com?", "api.example.com#", `api.example.com\`,
		"\xffapi.example.com", "[fe80::1%25en0]:80", "<a>", "%61pi.example.com", "api%2Eexample.com", "api%C2%AD.example.com",
		"%EF%BD%81pi.example.com:443", "api.example.com,x", "x,api.example.com",
	} {
		if status := ask(host); status != "400" {
			t.Errorf("%q: %s, want 400", host, status)
		}
	}
	for _, host := range []string{"xn--bcher-kva.example", "API.example.com:443", "[2001:db8::1]:443", "192.0.2.1", "a_b.example."} {
		if status := ask(host); status != "200" {
			t.Errorf("%q: %s, want 200", host, status)
			continue
		}
		if got := receive(t, requests, "the request"); got.Host != host || got.Header.Get("X-Forwarded-Host") != host {
			t.Errorf("%q arrived as %q, X-Forwarded-Host %q", host, got.Host, got.Header.Get("X-Forwarded-Host"))
		}
	}
	select {
	case got := <-requests:
		t.Errorf("a request with the host %q has arrived", got.Host)
	default:
	}
}

// TestMethodsThatAreNone has methods come by HTTP/2, of which the server checks none. No rule reads them, and that they cannot be
// passed on is no failure of the upstream.
func TestMethodsThatAreNone(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, nil)
	for _, method := range []string{"GET /admin HTTP/1.1", "DELETE ", "DEL,ETE", "G\u00c9T"} {
		conn, _ := p.raw(t, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		err := errors.Join(framer.WriteSettings(), framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, BlockFragment: fieldBlock(":method", method, ":scheme", "http", ":path", "/", ":authority", "x"),
			EndStream: true, EndHeaders: true,
		}))
		for status := ""; err == nil && status == ""; {
			var f http2.Frame
			if f, err = framer.ReadFrame(); err != nil {
				break
			}
			if h, ok := f.(*http2.MetaHeadersFrame); ok {
				if status = h.PseudoValue("status"); status != "400" {
					t.Errorf("%q: %s, want 400", method, status)
				}
			}
		}
		if err != nil {
			t.Errorf("%q: %v", method, err)
		}
	}
	p.expectTotals(t, proxy.Totals{Rejected: 4})
	select {
	case got := <-requests:
		t.Errorf("a request with the method %q has arrived", got.Method)
	default:
	}
}

// TestNoHostIsThatOfTheUpstream has limits by the host that the upstream gets, also of a request without one.
func TestNoHostIsThatOfTheUpstream(t *testing.T) {
	by, err := flags.ParseKey("host")
	if err != nil {
		t.Fatal(err)
	}
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) { o.Engine = limitBy(t, by, 2) })
	inner := strings.TrimPrefix(url, "http://")
	for i, text := range []string{
		"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + inner + "\r\nConnection: close\r\n\r\n",
	} {
		_, reader := p.raw(t, text)
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		switch {
		case i == 2 && res.StatusCode != http.StatusTooManyRequests, i < 2 && res.StatusCode != http.StatusOK:
			t.Errorf("request %d: %s", i, res.Status)
		case i < 2:
			if got := receive(t, requests, "the request"); got.Host != inner {
				t.Errorf("request %d arrived with the host %q, want %q", i, got.Host, inner)
			}
		}
	}
}
