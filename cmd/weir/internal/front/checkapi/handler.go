package checkapi

import (
	"net/http"
	"sync/atomic"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
	"github.com/weirhq/weir/cmd/weir/internal/live"
)

const (
	checkPath       = "/v1/check"
	decidePath      = "/v1/decide"
	batchPath       = "/v1/batch"
	reservePath     = "/v1/reserve"
	commitPath      = "/v1/commit"
	cancelPath      = "/v1/cancel"
	explainPath     = "/v1/explain"
	statusPath      = "/v1/status"
	reloadPath      = "/v1/reload"
	quotaPath       = "/v1/quota"
	adjustPath      = "/v1/quota/adjust"
	adjustmentsPath = "/v1/quota/adjustments"
	openAPIPath     = "/openapi.json"
	healthPath      = "/healthz"
	checkUpPath     = "/healthcheck" // as envoyproxy/ratelimit has it
	readyPath       = "/readyz"
	aboutPath       = "/"
)

// defaultPolicy is that of a check that names none.
var defaultPolicy = []byte("default")

// Options configure a [Handler].
type Options struct {
	// Limits are those that it answers for: of a configuration, or fixed. Required.
	Limits *live.Limits
	// Holds keep reservations. They belong to the caller, who closes them when the handler has answered its last request.
	// Default: nil, some of its own, which are never closed.
	Holds *holds.Holds
	// Admin decides who may look at the state of the server. Default: nil, no caller may.
	Admin *adminguard.Guard
	// AdminAt is where pages are that only Admin lets in, such as "--admin 127.0.0.1:7071", if they are not with the others: then
	// [Handler.Admin] answers them. Default: "", they are with the others.
	AdminAt string
	// Traffic is where requests are passed on, such as "--listen 127.0.0.1:8080", as clients may look for it here. Default: "",
	// nowhere.
	Traffic string
	// Audit notes what is changed. Default: nil, changes are not noted.
	Audit *adminguard.AuditLog
	// Extra returns what the status has besides. Default: nil, nothing.
	Extra func() map[string]any
	// Document returns the text of /openapi.json: that of [OpenAPI] with the pages of others. It is called for each request,
	// also by several goroutines at once. Default: nil, that of OpenAPI.
	Document func() ([]byte, error)
	// Ready returns why the server cannot decide on all limits now, or nil. Default: nil, it always can.
	Ready func() error
	// Quotas keep the limits of durability cluster. Default: nil, there are none.
	Quotas Quotas
}

// Handler answers checks, and the few pages around them. It is safe for concurrent use.
type Handler struct {
	limits  *live.Limits
	holds   *holds.Holds
	admin   *adminguard.Guard
	at      string // of pages of admin
	traffic string
	audit   *adminguard.AuditLog
	extra   func() map[string]any
	quotas  Quotas
	isReady func() error
	fields  answer.Fields
	// document describes all of it.
	document func() ([]byte, error)

	draining atomic.Bool
	rejected atomic.Int64
	waiting  *holds.Waiting
	bodies   room.Room // of batches
}

// NewHandler returns a handler.
func NewHandler(o Options) *Handler {
	h := &Handler{
		limits: o.Limits, holds: o.Holds, admin: o.Admin, at: o.AdminAt, traffic: o.Traffic, audit: o.Audit, extra: o.Extra,
		quotas: o.Quotas, document: o.Document, isReady: o.Ready, waiting: holds.NewWaiting(),
		bodies: room.Room{Max: batchRoom},
	}
	if h.document == nil {
		h.document = func() ([]byte, error) { return openAPI, nil }
	}
	if h.holds == nil {
		h.holds = holds.New(holds.Options{})
	}
	return h
}

// Drain makes /healthz answer 503 from now on. Checks are answered as before.
func (h *Handler) Drain() { h.draining.Store(true) }

// Rejected is how many requests could not be answered, because they were wrong.
func (h *Handler) Rejected() int64 { return h.rejected.Load() }

// page is what is served at a path, by get or by post.
type page struct {
	answer.Page

	admin bool // it is for those whom Admin lets in
	get   func(*Handler, http.ResponseWriter, *http.Request) *answer.Problem
	post  func(*Handler, http.ResponseWriter, *http.Request, *exchange) *answer.Problem
}

// pages are all of them.
var pages = []page{
	{answer.Post(checkPath), false, nil, (*Handler).check},
	{answer.Post(decidePath), false, nil, (*Handler).decide},
	{answer.Post(batchPath), false, nil, (*Handler).batch},
	{answer.Post(reservePath), false, nil, (*Handler).reserve},
	{answer.Post(commitPath), false, nil, (*Handler).commit},
	{answer.Post(cancelPath), false, nil, (*Handler).cancel},
	{answer.Post(explainPath), true, nil, (*Handler).explain},
	{answer.Get(statusPath), true, (*Handler).status, nil},
	{answer.Post(reloadPath), true, nil, (*Handler).reload},
	{answer.Get(quotaPath), true, (*Handler).quota, nil},
	{answer.Post(adjustPath), true, nil, (*Handler).adjust},
	{answer.Get(adjustmentsPath), true, (*Handler).adjustments, nil},
	{answer.Get(openAPIPath), false, (*Handler).openAPI, nil},
	{answer.Get(healthPath), false, (*Handler).health, nil},
	{answer.Get(checkUpPath), false, (*Handler).health, nil},
	{answer.Get(readyPath), false, (*Handler).ready, nil},
	{answer.Get(aboutPath), false, (*Handler).about, nil},
}

var found = answer.NewPages(pages)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.answer(w, r, false) }

// Admin returns the pages that only Options.Admin lets in, and those about the server, where they are apart from the others.
func (h *Handler) Admin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.answer(w, r, true) })
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, apart bool) {
	if p := h.serve(w, r, apart); p != nil {
		h.rejected.Add(1)
		p.Write(w)
	}
}

// serve serves a request. apart tells that it came to the pages of admin, apart from others.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, apart bool) *answer.Problem {
	at := found.ByPath[r.URL.Path]
	switch {
	case at == nil && h.traffic != "":
		return answer.PlainProblem(http.StatusNotFound, "no request is passed on here, but at %s: %s", h.traffic, found.Missing)
	case at == nil:
		return answer.PlainProblem(http.StatusNotFound, "%s", found.Missing)
	case at.admin && h.at != "" && !apart:
		return answer.PlainProblem(http.StatusNotFound, "%s is at %s", r.URL.Path, h.at)
	case apart && !at.admin && at.post != nil:
		return answer.PlainProblem(http.StatusNotFound, "%s is at --http: here are the admin pages", r.URL.Path)
	}
	if apart && r.URL.Path == aboutPath {
		return aboutAdmin(w, r)
	}
	if at.admin {
		in, p := h.admin.Enter(w, r)
		if p != nil {
			return p
		}
		r = in
	}
	if p := at.WrongMethod(w, r); p != nil {
		return p
	}
	if at.get != nil {
		return at.get(h, w, r)
	}
	x := begin()
	defer x.end()
	return at.post(h, w, r, x)
}
