package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/httplimit"
)

// exchange is one request and what becomes of it.
type exchange struct {
	proxy *Proxy
	in    *http.Request
	out   responseWriter
	start time.Time // of a request that is logged

	whole   bool // OPTIONS *, which is about the upstream as a whole
	peer    netip.Addr
	trusted bool

	told    told         // of its limits
	lease   weir.Lease   // of the place at the upstream
	upgrade string       // the protocol that the upstream was asked to switch to
	body    *requestBody // nil: none
	cancel  context.CancelCauseFunc

	upstreamErr error // that has cut the body of the response
	outcome     outcome
	returned    bool // the handler has not panicked
}

// outcome is what a request has come to. The texts are those of the log.
type outcome string

const (
	forwarded      outcome = "forwarded"
	refused        outcome = "refused" // until it is something else
	crowded        outcome = "crowded"
	rejected       outcome = "rejected"
	upstreamFailed outcome = "upstream-error"
	aborted        outcome = "aborted"
	cut            outcome = "cut" // by the end of the proxy
	panicked       outcome = "panicked"
)

// errStopped is why requests end that have outlived the shutdown.
var errStopped = errors.New("weir: proxy: stopped")

// errStalled is why a request ends whose body the upstream does not take.
var errStalled = errors.New("weir: proxy: the upstream does not read the body of the request")

func (x *exchange) serve() {
	r := x.in
	// What a server may read as "/" is that to the rules, too.
	x.whole = r.Method == http.MethodOptions && r.URL.Path == "*"
	if x.whole || r.URL.Path == "" && r.URL.Opaque == "" && r.Method != http.MethodConnect {
		r.URL.Path = "/"
	}
	if r.Host == "" && x.proxy.o.UpstreamHost == "" {
		r.Host = x.proxy.o.Upstream.URL.Host // which the upstream gets as Host
	}
	// Without an address, as of a connection that is not one of IP, it is the zero Addr.
	x.peer, _ = clientip.Parse(r.RemoteAddr)
	x.trusted = x.proxy.clients.Trusts(x.peer)
	drop(r.Header, x.trusted)
	x.upgrade = upgradeOf(r.Header)
	if isHTTP(x.upgrade) || len(r.TransferEncoding) > 0 || x.proxy.o.Upstream.H2C {
		// All that comes through a connection of HTTP would get past the limit, one whose request came in chunks ends with the
		// answer, and HTTP/2 has no upgrade. It may be ignored.
		x.upgrade = ""
	}
	if x.upgrade == "" {
		delete(r.Header, "Upgrade")
		delete(r.Header, "Http2-Settings")
	}
	x.proxy.limited.ServeHTTP(&x.out, r)
	if x.outcome != refused {
		return
	}
	switch x.out.status {
	case httplimit.StatusClientClosedRequest:
		x.abort()
	case http.StatusInternalServerError: // the engine has not decided
		x.outcome = rejected
	}
}

// pass passes on a request that its limits have allowed. r has the context of the gate.
func (x *exchange) pass(r *http.Request) {
	p := x.proxy
	x.in, x.told = r, takeTold(x.out.Header())
	if status, why := x.wrong(); status != 0 {
		x.reject(status, why)
		return
	}
	if !x.enter() {
		return
	}
	x.outcome = forwarded
	p.totals.allowed.Add(1)
	p.reverse.ServeHTTP(&x.out, x.passed())
}

// wrong returns the status with which a request is rejected that no upstream may get, or 0.
func (x *exchange) wrong() (status int, why string) {
	r, o := x.in, &x.proxy.o
	switch {
	case r.Method == http.MethodConnect:
		return http.StatusNotImplemented, "This server is not a forward proxy."
	case strings.EqualFold(r.Method, http.MethodTrace), strings.EqualFold(r.Method, "TRACK"):
		// The upstream would send back all fields of the request, those that proxies have added included. Some take trace for it.
		x.out.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		return http.StatusMethodNotAllowed, "This server does not pass " + r.Method + " on."
	case r.Method == "PRI":
		// The server hands on the beginning of HTTP/2, where HTTP/1.1 was agreed on, as if it were a request.
		return http.StatusHTTPVersionNotSupported, "This connection speaks HTTP/1.1."
	case !flags.IsMethod(r.Method):
		// The server does not check that of HTTP/2. No rule reads it, and the transport would not send it.
		return http.StatusBadRequest, "The method of the request has characters that no method has."
	case !flags.IsHost(r.Host):
		// The upstream would get another host than the rules have seen.
		return http.StatusBadRequest, "The host of the request has characters that no host has."
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		// Some upstreams cut a fragment off, and others take it for a part of the path or of a parameter.
		return http.StatusBadRequest, "The target of a request has no fragment."
	case strings.IndexByte(r.URL.Path, 0) >= 0:
		// Some upstreams take what comes before it for the path.
		return http.StatusBadRequest, "The path of a request has no zero byte."
	case r.URL.Opaque != "", r.URL.Path == "*":
		// No rule reads it as the path that an upstream may take it for.
		return http.StatusBadRequest, "The request needs a path that begins with a slash."
	case o.Upstream.URL.Path != "" && climbs(r.URL.Path):
		return http.StatusBadRequest, `The path must not contain "..".`
	case o.MaxBody > 0 && r.ContentLength > o.MaxBody:
		return http.StatusRequestEntityTooLarge, "The body of the request is too large."
	}
	for _, protocol := range r.Header["Upgrade"] {
		if strings.ContainsFunc(protocol, func(c rune) bool { return c < ' ' || c > '~' }) {
			return http.StatusBadRequest, "The header Upgrade must consist of printable characters."
		}
	}
	return 0, ""
}

// enter waits for a place at the upstream, and answers the request if there is none.
func (x *exchange) enter() bool {
	c := x.proxy.concurrency
	if c == nil {
		return true
	}
	lease, err := c.Acquire(x.in.Context(), 1)
	switch {
	case errors.Is(err, weir.ErrRefused):
		x.crowd(lease.Decision())
		return false
	case err != nil:
		x.abort()
	}
	if x.lease = lease; x.proxy.stopped.Load() {
		x.abort() // the place is that of a request that was cut, as this one is or will be in a moment
	}
	return true
}

// passed is the request as it is handed to the reverse proxy.
func (x *exchange) passed() *http.Request {
	o := &x.proxy.o
	ctx := withExchange(x.in.Context(), x)
	source := x.in.Body
	streamed := source != nil && source != http.NoBody && x.in.ContentLength != 0
	if streamed {
		// Otherwise the response of an upstream that answers before it has read everything would wait for the request.
		_ = http.NewResponseController(x.out.ResponseWriter).EnableFullDuplex() // HTTP/2 always is
		if o.MaxBody > 0 {
			source = http.MaxBytesReader(x.out.ResponseWriter, source, o.MaxBody)
		}
		x.body = &requestBody{
			source: source, client: http.NewResponseController(x.out.ResponseWriter),
			slow: patience{max: o.ClientTimeout, left: o.ClientTimeout}, watched: o.ClientTimeout > 0,
		}
		if o.UpstreamTimeout > 0 {
			ctx, x.cancel = context.WithCancelCause(ctx)
			x.body.watch(o.UpstreamTimeout, x.cancel)
		}
	}
	r := x.in.WithContext(ctx)
	if streamed {
		r.Body = x.body
	}
	return r
}

// answered looks at the response of the upstream before it is passed on.
func (x *exchange) answered(res *http.Response) error {
	if x.body != nil {
		x.body.unwatch()
	}
	switch {
	case res.StatusCode < http.StatusContinue, res.StatusCode > 999:
		return errors.New("weir: proxy: the status of the upstream is " + res.Status)
	case res.StatusCode == http.StatusSwitchingProtocols:
		if x.upgrade == "" || !strings.EqualFold(upgradeOf(res.Header), x.upgrade) {
			return errors.New("weir: proxy: the upstream switches to a protocol that it was not asked for")
		}
	case res.Body != http.NoBody:
		res.Body = &responseBody{res.Body, x}
	}
	x.told.tell(res.Header)
	return nil
}

// failed serves a request for which there is no response of the upstream. r is the request to the upstream.
func (x *exchange) failed(r *http.Request, err error) {
	if x.body != nil && x.body.late() {
		x.reject(http.StatusRequestTimeout, "The body of the request did not come in time.")
		return
	}
	if x.in.Context().Err() != nil || x.out.hijacked {
		x.abort() //nolint:contextcheck // it is about the request to the proxy
	}
	if x.body != nil {
		if source := x.body.failure(); source != nil {
			if tooLarge, ok := errors.AsType[*http.MaxBytesError](source); ok && tooLarge != nil {
				x.reject(http.StatusRequestEntityTooLarge, "The body of the request is too large.")
			} else {
				// Most often the client is gone, and this is never read.
				x.reject(http.StatusBadRequest, "The body of the request cannot be read.")
			}
			return
		}
	}
	status, detail := http.StatusBadGateway, "The upstream does not answer this request."
	if cause := context.Cause(r.Context()); errors.Is(cause, errStalled) {
		status, err = http.StatusGatewayTimeout, cause
	} else if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		status = http.StatusGatewayTimeout
	}
	if status == http.StatusGatewayTimeout {
		detail = "The upstream does not answer in time."
	}
	x.outcome, x.upstreamErr = upstreamFailed, err
	x.respond(status, detail)
}

// abort ends a request whose client is gone, or must not believe that it has got a response.
func (x *exchange) abort() {
	x.outcome = x.goneOutcome()
	panic(http.ErrAbortHandler)
}

func (x *exchange) goneOutcome() outcome {
	if errors.Is(x.out.err, os.ErrDeadlineExceeded) { // it is there, and takes nothing
		return aborted
	}
	if why := context.Cause(x.in.Context()); why == nil || errors.Is(why, errStopped) {
		return cut
	}
	return aborted
}

// reject serves a request that no upstream may get.
func (x *exchange) reject(status int, why string) {
	x.outcome = rejected
	x.respond(status, why)
}

// end gives back what the request holds, counts it and writes its line.
func (x *exchange) end() {
	x.lease.Release()
	if x.out.hijacked {
		x.proxy.upgrades.remove(x)
	}
	if x.upstreamErr != nil && !x.returned && x.outcome == forwarded && x.in.Context().Err() == nil {
		// The server throws away what it has not sent when the connection is cut: a client without a part of the response would
		// take its request for one that was not served, and send it again.
		_ = x.out.FlushError() // which remembers its error
	}
	x.out.hurry() // for what the server still has of the response
	x.await()
	if x.body != nil {
		x.body.finish()
	}
	if x.cancel != nil {
		x.cancel(nil)
	}
	if !x.returned && x.outcome == forwarded {
		// The header of the response has been sent, but not the whole body.
		switch {
		case x.in.Context().Err() != nil, x.out.err != nil:
			x.outcome = x.goneOutcome()
		case x.upstreamErr != nil:
			x.outcome = upstreamFailed
		default:
			x.outcome = panicked
		}
	}
	if x.outcome == upstreamFailed {
		x.proxy.faults.LogAttrs(x.in.Context(), slog.LevelWarn, "upstream failed", slog.String("method", x.in.Method),
			slog.String("path", x.in.URL.EscapedPath()), slog.Int("status", x.out.status),
			slog.String("error", x.upstreamErr.Error()))
	}
	if x.proxy.o.LogRequests {
		x.log()
	}
	x.proxy.totals.count(x.outcome) // last, so that the lines are there when the count is
}

// await waits while the client of a stream of HTTP/2 does not take what is left of its response: the request is under way until
// then.
func (x *exchange) await() {
	switch {
	case !x.returned || x.in.ProtoMajor < 2:
	case x.out.written > 0:
		_ = http.NewResponseController(x.out.ResponseWriter).Flush()
	default:
		front.Await(x.in)
	}
}

func (x *exchange) log() {
	client, _ := x.proxy.clients.Client(x.in.RemoteAddr, x.in.Header[forwardedFor])
	x.proxy.o.Logger.LogAttrs(x.in.Context(), slog.LevelInfo, "request",
		slog.String("client", client.String()),
		slog.String("method", x.in.Method),
		slog.String("host", x.in.Host),
		slog.String("path", x.in.URL.EscapedPath()),
		slog.Int("status", x.out.status),
		slog.Int64("bytes", x.out.written),
		slog.Float64("duration_ms", float64(time.Since(x.start).Microseconds())/1000),
		slog.String("outcome", string(x.outcome)),
		slog.String("limits", strings.Join(x.told.limit, ", ")),
	)
}

// count adds one request. Allowed requests have been counted when they were allowed.
func (t *totals) count(o outcome) {
	switch o {
	case refused:
		t.refused.Add(1)
	case crowded:
		t.crowded.Add(1)
	case rejected:
		t.rejected.Add(1)
	case upstreamFailed:
		t.upstreamErrors.Add(1)
	case aborted:
		t.aborted.Add(1)
	case forwarded, cut, panicked:
	}
}
