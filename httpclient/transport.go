package httpclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/ratelimitfields"
)

// Transport is an [http.RoundTripper] for a client that keeps to the limits of the servers it talks to. It starts no goroutine.
// All methods are safe for concurrent use.
//
// Before it sends a request, it waits for its own limiter, if it has one, and until the server will accept the request.
// [ratelimitfields.Parse] lists the fields that it understands. For each host it remembers
//
//   - a Retry-After of a response with status 429, 503 or 403: nothing is sent to that host before;
//   - what remains of each limit. It is counted down with each request, and once it is used up nothing is sent until the limit
//     resets. Limits that count something else than requests, such as tokens, hold requests back when the server reports that
//     none remain.
//
// Requests that are held back wait in a queue, oldest first. When the time has come they are sent one by one, at the pace of the
// limit: they never come back all together (TestTransportReleasesAtThePaceOfTheLimit). A request whose turn would come after the
// deadline of its context, or after MaxWait, fails at once with a [LimitedError], which has how long it would have taken.
//
// A server can hold a host back for MaxHold at most after each response, and invalid values are ignored. Memory is bounded by
// MaxHosts and QueueLimit. The zero Transport is not usable: call [New].
type Transport struct {
	options Options
	hosts   *hosts
	holds   bool // the own limiter gets its permits back by releasing them
}

// New returns a Transport, or an error that names the option that cannot be used.
func New(o Options) (*Transport, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	t := &Transport{options: o, hosts: newHosts(&o)}
	switch {
	case o.Limiter != nil:
		t.holds = returnsPermits(o.Limiter)
	case o.Keyed != nil:
		t.holds = returnsPermits(o.Keyed)
	}
	return t, nil
}

// returnsPermits reports whether the permits of a limiter are out while a request is on its way. Of one that does not say so
// they may be.
func returnsPermits(limiter any) bool {
	if members, ok := limits.Members(limiter); ok {
		return slices.ContainsFunc(members, func(member weir.Acquirer) bool { return returnsPermits(member) })
	}
	l, ok := limiter.(limited)
	return !ok || l.Limit().Algorithm() == weir.AlgorithmConcurrency
}

// RoundTrip implements [http.RoundTripper]. If the request was not sent because of a limit, the error is a *[LimitedError]; if
// its context ended while it waited, the error is the cause of that.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	u := &turn{t: t, ctx: r.Context(), left: t.options.MaxWait, name: keytext.Whole(t.options.Partition(r))}
	u.cost = 1
	if t.options.Cost != nil {
		u.cost = t.options.Cost(r)
	}
	req, retries := r, 0
	var refused *http.Response // the answer that req is sent again for
	for {
		h, f, err := u.wait() //nolint:contextcheck // the turn has the context of the request
		if err != nil {
			closeBody(req)
			if refused != nil && u.ctx.Err() == nil { // better than no answer
				return refused, nil
			}
			return nil, err
		}
		resp, err := u.send(req, h, f)
		if err != nil {
			return resp, err
		}
		if overloaded(resp.StatusCode) {
			u.fate = weir.Lease.Drop
		}
		told := ratelimitfields.Parse(resp.Header, time.Now())
		again := h.observe(f, resp.StatusCode, &told)
		if !again || retries == t.options.MaxRetries || !t.canRepeat(r, resp.StatusCode) || !u.reaches(h) || !keepBody(resp) {
			t.hosts.leave(h)
			return u.finish(resp), nil
		}
		next, err := repeated(r)
		if err != nil {
			t.hosts.leave(h)
			return u.finish(resp), nil //nolint:nilerr // the answer is there, only another one is not
		}
		h.retried()
		t.hosts.leave(h)
		if u.settlement() != nil {
			u.lease.Cancel()
		} else {
			u.fate(u.lease)
		}
		req, refused = next, resp
		retries++
	}
}

// CloseIdleConnections closes those of Base, if it can.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// turn is the way of one request through the limits.
type turn struct {
	t     *Transport
	ctx   context.Context
	name  string
	cost  int64
	left  time.Duration // of MaxWait
	lease weir.Lease    // of the own limiter
	fate  fate          // of the last request that was sent
}

// wait waits until the request may be sent, and returns the host, which must be left, and the request on its way there.
func (u *turn) wait() (*host, *flight, error) {
	start := time.Now()
	h, refusal := u.t.hosts.enter(u.name)
	if refusal != nil {
		return nil, nil, refusal
	}
	f, err := u.waitFor(h, start)
	if err != nil {
		u.t.hosts.leave(h)
		return nil, nil, err
	}
	if u.left != weir.Never {
		u.left = max(u.left-time.Since(start), 0)
	}
	return h, f, nil
}

func (u *turn) waitFor(h *host, start time.Time) (*flight, error) {
	if err := context.Cause(u.ctx); err != nil {
		return nil, err
	}
	// First without waiting: a permit of the own limiter is not for a request that will not be sent.
	until := u.until(start)
	if refusal := h.check(until); refusal != nil {
		return nil, refusal
	}
	if err := u.ask(); err != nil {
		return nil, err
	}
	f, err := h.wait(u.ctx, until)
	if err != nil {
		u.lease.Cancel()
	}
	return f, err
}

// send sends the request. If there is no response, also if Base panics, nothing is held for it any more.
func (u *turn) send(req *http.Request, h *host, f *flight) (resp *http.Response, err error) {
	answered := false
	defer func() {
		if !answered {
			h.failed(f)
			u.t.hosts.leave(h)
			u.end()
		}
	}()
	resp, err = u.t.options.Base.RoundTrip(req)
	answered = err == nil
	u.fate = fateOf(err)
	return resp, err
}

// overloaded reports whether a response with this status was refused, as the server can do no more.
func overloaded(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// fate is what became of a request. It ends the lease: a limit that adapts learns whether the request was served or lost, or
// nothing.
type fate func(weir.Lease)

// fateOf is that of a request, or of its body, that has ended with err.
func fateOf(err error) fate {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return weir.Lease.Drop
	case errors.Is(err, context.Canceled):
		return ignore
	}
	return weir.Lease.Release
}

//nolint:errcheck,forcetypeassert,gochecknoglobals // package weir has set it, which is initialized before
var ignore = inside.Ignore.(func(weir.Lease))

// until is when the request must be sent at the latest; the zero Time is never.
func (u *turn) until(start time.Time) (at time.Time) {
	if u.left != weir.Never {
		at = start.Add(u.left)
	}
	if deadline, ok := u.ctx.Deadline(); ok && (at.IsZero() || deadline.Before(at)) {
		at = deadline
	}
	return at
}

// ask asks the own limiter.
func (u *turn) ask() error {
	o := &u.t.options
	u.lease, u.fate = weir.Lease{}, weir.Lease.Release
	if o.Limiter == nil && o.Keyed == nil || u.cost == 0 {
		return nil
	}
	ctx := u.ctx
	if u.left != weir.Never {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, u.left)
		defer cancel()
	}
	var (
		lease weir.Lease
		err   error
	)
	if o.Limiter != nil {
		lease, err = o.Limiter.Reserve(ctx, u.cost)
	} else {
		lease, err = o.Keyed.Reserve(ctx, u.name, u.cost)
	}
	switch d := lease.Decision(); {
	case errors.Is(err, weir.ErrRefused) || err == nil && !lease.Allowed():
		return &LimitedError{
			Host: u.name, Limit: d.Policy, Reason: d.Reason, RetryAfter: d.RetryAfter, Cost: u.cost,
			Err: errors.Unwrap(err),
		}
	case err != nil && u.ctx.Err() != nil && errors.Is(err, u.ctx.Err()):
		return context.Cause(u.ctx) // as it is: package net/http looks for a timeout without unwrapping
	case err != nil && (u.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)):
		return err
	case err != nil:
		return &LimitedError{
			Host: u.name, Limit: d.Policy, Reason: weir.ReasonDeadline, RetryAfter: d.RetryAfter, Cost: u.cost, Err: err,
		}
	}
	u.lease = lease
	return nil
}

// reaches reports whether the request can be sent again in the time that it has.
func (u *turn) reaches(h *host) bool { return u.left > 0 && h.peek(u.until(time.Now())) == nil }

// finish hands the answer out, and the lease back, at once or when the body has been read.
func (u *turn) finish(resp *http.Response) *http.Response {
	if !u.t.holds || !u.lease.Allowed() || resp.Body == nil || resp.Body == http.NoBody || u.settlement() != nil {
		u.end()
		return resp
	}
	body := &leasedBody{resp.Body, u.lease, u.fate}
	w, upgraded := resp.Body.(io.Writer) // a connection that has left HTTP
	half, ends := resp.Body.(writeCloser)
	switch {
	case upgraded && ends:
		resp.Body = &leasedHalves{&leasedStream{body, w}, half}
	case upgraded:
		resp.Body = &leasedStream{body, w}
	default:
		resp.Body = body
	}
	return resp
}

// end gives the lease to the settlement of the request, if there is one, or else back.
func (u *turn) end() {
	if s := u.settlement(); s != nil {
		s.hold(u.lease)
		return
	}
	u.fate(u.lease)
}

// leasedBody gives a lease back at the end of a body.
type leasedBody struct {
	io.ReadCloser

	lease weir.Lease
	fate  fate // unless the body is cut short
}

// Read implements [io.Reader].
func (b *leasedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		fateOf(err)(b.lease)
	default:
		b.fate(b.lease)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *leasedBody) Close() error {
	defer b.fate(b.lease)
	return b.ReadCloser.Close()
}

type leasedStream struct {
	*leasedBody
	io.Writer
}

// leasedHalves is a stream that may end in one direction, as one over TCP and TLS.
type leasedHalves struct {
	*leasedStream
	writeCloser
}

type writeCloser interface{ CloseWrite() error }

// canRepeat reports whether a request that was refused with status may be sent again. With 429 it was not served, so it may be.
// With 503 that is not known, so only a request that may be done twice is repeated.
func (t *Transport) canRepeat(r *http.Request, status int) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	if status == http.StatusTooManyRequests {
		return true
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// repeated is r with its body from the beginning.
func repeated(r *http.Request) (*http.Request, error) {
	if r.GetBody == nil {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	again := *r
	again.Body = body
	return &again, nil
}

// keptBody is how much of the body of a refusal is kept in case that it must be handed out after all.
const keptBody = 64 << 10

// keepBody reads the body of a refusal, so that its connection can be used again. It is false for a body that is too long or
// breaks off, which can be read as if nothing had been.
func keepBody(resp *http.Response) bool {
	if resp.Body == nil {
		return true
	}
	kept, err := io.ReadAll(io.LimitReader(resp.Body, keptBody+1))
	if err != nil || len(kept) > keptBody {
		rest := struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(kept), failing{err}, resp.Body), resp.Body}
		resp.Body = rest
		return false
	}
	_ = resp.Body.Close() // all of it has been read
	resp.Body = io.NopCloser(bytes.NewReader(kept))
	return true
}

// failing is a reader with an error, or one that is empty.
type failing struct{ err error }

// Read implements [io.Reader].
func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// closeBody closes the body of a request that is not sent, as every RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // it was for reading
	}
}

// hostOf is the host of a request in lower case, without the port if that is usual.
func hostOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	name := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "https":
		name = strings.TrimSuffix(name, ":443")
	case "http":
		name = strings.TrimSuffix(name, ":80")
	}
	return name
}
