package forwardauth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// The addresses.
const (
	Path      = "/v1/auth"
	nginxPath = "/v1/auth/nginx"
	envoyPath = "/v1/auth/envoy"
)

// ProblemField is the header field in which nginx gets the body of a refusal.
const ProblemField = "X-Weir-Problem"

// Decider decides on requests. A *[policy.Engine] is one.
type Decider interface {
	Take(r *policy.Request, v *policy.Verdict)
}

// Options configure a [Handler].
type Options struct {
	// Decider decides. Required.
	Decider Decider
	// Trusted are the networks of the servers that may ask, and of the proxies in front of them, whose entries in
	// X-Forwarded-For are skipped. Default: none, no server may ask.
	Trusted []netip.Prefix
	// Status is that of refusals: from 400 to 499. At the address for nginx it is 403 unless it is 401. Default: 0, which is
	// 429, or 503 where the server has no room for any client, but 429 for Envoy: it would take 503 for a failure of the server
	// itself. A request that a rule denies has 403 whatever Status is.
	Status int
	// Fields are the header fields in which limits are told. With ratelimitfields.NoFields the bodies of refusals name no policy
	// either. Default: ratelimitfields.RateLimit11.
	Fields ratelimitfields.Fields
	// Logger logs at level Warn the requests that could not be decided, once in ten seconds. Default: nil, silent.
	Logger *slog.Logger
}

// Handler reports whether requests may pass. It is safe for concurrent use.
type Handler struct {
	decider Decider
	client  *clientip.Resolver
	status  int
	logger  *slog.Logger
	fields  answer.Fields
	start   time.Time

	passed, refused, rejected atomic.Uint64
	// quiet is when the next problem is logged, in nanoseconds since start.
	quiet atomic.Int64
}

// quietTime is how long no problem is logged after one was: a server that may ask can ask often.
const quietTime = 10 * time.Second

// New returns a handler, or an error that names the option that cannot be used.
func New(o Options) (*Handler, error) {
	if o.Decider == nil {
		return nil, errors.New("weir: forwardauth: Options.Decider is nil: must be given")
	}
	if o.Status != 0 && (o.Status < 400 || o.Status > 499) {
		return nil, fmt.Errorf("weir: forwardauth: Options.Status is %d: must be from 400 to 499, or 0", o.Status)
	}
	client, err := clientip.New(clientip.Options{TrustedProxies: o.Trusted})
	if err != nil {
		return nil, fmt.Errorf("weir: forwardauth: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{decider: o.Decider, client: client, status: o.Status, logger: o.Logger, start: time.Now()}
	h.fields.Headers.Fields = o.Fields
	if err := h.fields.Headers.Check(); err != nil {
		return nil, fmt.Errorf("weir: forwardauth: %w", err)
	}
	return h, nil
}

// Serves reports whether path is one of the addresses of the handler.
func Serves(path string) bool {
	rest, ok := strings.CutPrefix(path, Path)
	return ok && (rest == "" || rest == "/nginx" || rest == "/envoy" || strings.HasPrefix(rest, "/envoy/"))
}

// Counts are what a [Handler] has answered.
type Counts struct {
	// Passed and Refused count requests that were decided, Rejected those that could not be.
	Passed   uint64 `json:"allowed"`
	Refused  uint64 `json:"refused"`
	Rejected uint64 `json:"rejected"`
}

// Counts returns what the handler has answered so far.
func (h *Handler) Counts() Counts {
	return Counts{Passed: h.passed.Load(), Refused: h.refused.Load(), Rejected: h.rejected.Load()}
}

// exchange is the memory of one decision.
type exchange struct {
	request policy.Request
	verdict policy.Verdict
	last    answer.Last
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// ServeHTTP returns 200 if the original request may pass.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, _ := exchanges.Get().(*exchange)
	defer func() {
		x.request = policy.Request{}
		exchanges.Put(x)
	}()
	from := kindOf(r.URL.Path)
	x.request = policy.Request{Context: r.Context()}
	if err := h.describe(&x.request, r, from); err != nil {
		h.reject(w, r, err)
		return
	}
	h.decider.Take(&x.request, &x.verdict)
	defer x.verdict.Release()

	header := w.Header()
	header["Cache-Control"] = noStore
	seconds := h.fields.Tell(header, &x.verdict, &x.last)
	if x.verdict.Allowed {
		h.passed.Add(1)
		header["Content-Length"] = zero
		if over := x.verdict.Over(0); len(over) > 0 {
			header[answer.OverField] = []string{answer.FormatOver(over)}
		}
		return
	}
	h.refused.Add(1)
	problem := answer.OfRefusal(&x.verdict, seconds, h.fields.Headers.Fields != ratelimitfields.NoFields)
	denied := problem.Status == http.StatusForbidden // nginx hands it on as it is
	status := problem.Status
	if !denied {
		status = h.refusalStatus(from, problem.Status)
	}
	if from != nginx {
		problem.Status = status // nginx answers the client itself, with the status of the problem
	}
	body := answer.JSON(problem)
	if from == nginx && !denied {
		header[ProblemField] = []string{string(body)}
	}
	send(w, status, body)
}

var (
	noStore = []string{"no-store"}
	zero    = []string{"0"}
)

// refusalStatus is the status of a refusal whose own is usual.
func (h *Handler) refusalStatus(k kind, usual int) int {
	switch {
	case k == nginx && h.status == http.StatusUnauthorized:
		return http.StatusUnauthorized
	case k == nginx:
		return http.StatusForbidden
	case h.status != 0:
		return h.status
	case k == envoy:
		return http.StatusTooManyRequests
	default:
		return usual
	}
}

func send(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = problemType
	header["X-Content-Type-Options"] = noSniff
	header["Content-Length"] = []string{strconv.Itoa(len(body) + 1)}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a server that has gone is not told
}

var (
	problemType = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
)

// reject serves a request that cannot be decided.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, err error) {
	h.rejected.Add(1)
	now, next := int64(time.Since(h.start)), h.quiet.Load()
	if now >= next && h.quiet.CompareAndSwap(next, now+int64(quietTime)) {
		h.logger.Warn("cannot decide", "address", kindOf(r.URL.Path).path(), "peer", r.RemoteAddr, "error", err.Error())
	}
	w.Header()["Cache-Control"] = noStore
	send(w, http.StatusBadRequest, answer.JSON(httplimit.Problem{
		Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest,
		Detail: err.Error(),
	}))
}
