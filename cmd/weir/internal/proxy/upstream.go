package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeH2C   = "h2c"
)

// Upstream is the service that requests are passed on to.
type Upstream struct {
	// URL has the scheme, http or https, the host, and the prefix of all paths.
	URL *url.URL
	// Socket is the path of a Unix socket, empty for TCP.
	Socket string
	// H2C says that the service speaks HTTP/2 without TLS, and nothing else: the scheme is http.
	H2C bool
}

// ParseUpstream reads http://host[:port][/prefix], https or h2c instead of http, or unix:///path/of.sock. The error reads as
// what follows the value.
func ParseUpstream(s string) (Upstream, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Opaque != "" || u.Scheme == "":
		return Upstream{}, upstreamError("must be http://host:port, https://host:port, h2c://host:port or unix:///path/of.sock")
	case u.User != nil:
		return Upstream{}, upstreamError("must have no user and password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Upstream{}, upstreamError("must have no query and no fragment")
	}
	switch u.Scheme {
	case schemeHTTP, schemeHTTPS, schemeH2C:
		if port := u.Port(); u.Hostname() == "" || port != "" && !isPort(port) || strings.HasSuffix(u.Host, ":") {
			return Upstream{}, upstreamError("must have a host, and a port from 1 to 65535 if any")
		}
		if climbs(u.Path) {
			return Upstream{}, upstreamError(`must have a path without ".."`)
		}
		to := Upstream{URL: u, H2C: u.Scheme == schemeH2C}
		if to.H2C {
			u.Scheme = schemeHTTP
		}
		return to, nil
	case "unix":
		if u.Host != "" || len(u.Path) < 2 {
			return Upstream{}, upstreamError("must be unix:// and the absolute path of a socket: unix:///run/app.sock")
		}
		return Upstream{URL: &url.URL{Scheme: schemeHTTP, Host: "localhost"}, Socket: u.Path}, nil
	default:
		return Upstream{}, upstreamError("must begin with http://, https://, h2c:// or unix://")
	}
}

type upstreamError string

func (e upstreamError) Error() string { return string(e) }

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// String is what [ParseUpstream] reads back.
func (u Upstream) String() string {
	switch {
	case u.Socket != "":
		return (&url.URL{Scheme: "unix", Path: u.Socket}).String()
	case u.URL == nil:
		return ""
	case u.H2C:
		shown := *u.URL
		shown.Scheme = schemeH2C
		return shown.String()
	default:
		return u.URL.String()
	}
}

// address is the host and port of the upstream, empty for a Unix socket.
func (u Upstream) address() string {
	if u.Socket != "" {
		return ""
	}
	port := u.URL.Port()
	if port == "" {
		port = map[string]string{schemeHTTP: "80", schemeHTTPS: "443"}[u.URL.Scheme]
	}
	return net.JoinHostPort(u.URL.Hostname(), port)
}

const (
	dialTimeout = 10 * time.Second
	// Many servers close idle connections after 5 s. A request that is sent just then fails, and one with a body cannot
	// be sent again: be the first to close.
	upstreamIdleTimeout = 4 * time.Second
	// All connections go to one host, so that many must be kept for those that come at the same time.
	upstreamIdleConns = 1024
	// An upstream that does not say "100 Continue" gets the body after this.
	expectContinueTimeout = time.Second
	// A connection of HTTP/2 over which nothing comes is asked for a sign of life after pingAfter, and is given up without one
	// pingTimeout later. Without that, requests would go the way of the dead for as long as they come one after the other.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second

	maxUpstreamHeaderBytes  = 1 << 20
	upstreamConnBufferBytes = 16 << 10
)

// transport sends requests to the upstream. HTTP/2 is spoken with an https upstream that offers it, and with one of h2c.
type transport struct {
	any *http.Transport
	// calls is that of gRPC, whose servers end a connection that asks for signs of life more often than every 5 minutes.
	calls *http.Transport
	// upgrades speaks HTTP/1.1 only: HTTP/2 has no Upgrade. It is not used with an upstream of h2c.
	upgrades *http.Transport
}

// newTransport returns the transport to u. A response header must come within timeout after the request, if it is not
// 0. roots are the certificate authorities of an https upstream, nil for those of the system.
func newTransport(u Upstream, timeout time.Duration, roots *x509.CertPool) transport {
	dialer := net.Dialer{Timeout: dialTimeout}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // bodies pass as they are
		MaxIdleConns:           upstreamIdleConns,
		MaxIdleConnsPerHost:    upstreamIdleConns,
		IdleConnTimeout:        upstreamIdleTimeout,
		ResponseHeaderTimeout:  timeout,
		ExpectContinueTimeout:  expectContinueTimeout,
		MaxResponseHeaderBytes: maxUpstreamHeaderBytes,
		WriteBufferSize:        upstreamConnBufferBytes,
		ReadBufferSize:         upstreamConnBufferBytes,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	if u.Socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", u.Socket)
		}
	}
	if u.URL.Scheme != schemeHTTPS && !u.H2C {
		return transport{t, t, t}
	}
	all := t.Clone()
	all.Protocols.SetHTTP1(!u.H2C)
	all.Protocols.SetHTTP2(!u.H2C)
	all.Protocols.SetUnencryptedHTTP2(u.H2C)
	calls := all.Clone()
	all.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return transport{all, calls, t}
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.of(r).RoundTrip(r) }

// of is what a request is sent by.
func (t transport) of(r *http.Request) *http.Transport {
	switch {
	case len(r.Header["Upgrade"]) > 0:
		return t.upgrades
	case isCall(r):
		return t.calls
	}
	return t.any
}

// CloseIdleConnections closes the connections that no request uses.
func (t transport) CloseIdleConnections() {
	t.any.CloseIdleConnections()
	t.calls.CloseIdleConnections()
	t.upgrades.CloseIdleConnections()
}

// climbs reports whether a decoded path has a segment that some server takes for "..": backslashes are slashes to some,
// and some cut what follows a semicolon.
func climbs(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment == ".." || strings.HasPrefix(segment, "..;") {
			return true
		}
	}
	return false
}
