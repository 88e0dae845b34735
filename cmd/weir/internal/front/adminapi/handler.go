// Package adminapi is the HTTP API for operators. It shows what the server does, which clients are refused and why, and which
// keys are under pressure. It ends lockouts, overrides limits, resets keys and reloads the configuration. Every change goes to
// the audit log.
package adminapi

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// Options configure a [Handler].
type Options struct {
	// Limits are those of the server. Required.
	Limits *live.Limits
	// Guard decides who is let in. Default: nil, no caller is.
	Guard *adminguard.Guard
	// Audit notes what is changed. Required.
	Audit *adminguard.AuditLog
	// Refusals are the last ones. Required.
	Refusals *Refusals
	// Status returns what fronts, the store and the cluster say about themselves, by name. Default: nil, nothing.
	Status func() map[string]any
	// Explain serves [operator.ExplainPath], to callers that are let in. Required.
	Explain http.HandlerFunc
	// Ready returns nil, or why durable limits cannot be decided. Default: nil, they can.
	Ready func() error
	// Members are the nodes of the cluster. Default: nil, there is none.
	Members Members
	// Version is that of the program, and Started when it has begun.
	Version string
	Started time.Time
}

// Handler serves the paths of package operator that begin with /v1/admin/. It is safe for concurrent use.
type Handler struct {
	o        Options
	hub      hub
	words    atomic.Pointer[words]
	draining atomic.Bool
	searches chan struct{} // has one for each search that is under way
}

// New returns a handler.
func New(o Options) *Handler {
	if o.Status == nil {
		o.Status = func() map[string]any { return nil }
	}
	h := &Handler{o: o, searches: make(chan struct{}, mostSearches)}
	h.hub.init(h)
	return h
}

// Drain ends the streams of events, and says from now on that the server shuts down.
func (h *Handler) Drain() {
	h.draining.Store(true)
	h.hub.end()
}

// Streams is how many streams of events are open.
func (h *Handler) Streams() int { return h.hub.open() }

const prefix = "/v1/admin/"

// Serves reports whether path is one of the handler.
func Serves(path string) bool { return strings.HasPrefix(path, prefix) }

// page is what is served at a path. It returns what is written as JSON, or nil if it has written a response itself.
type page struct {
	answer.Page

	serve func(*Handler, *call) (any, *answer.Problem)
	query []string // the names of parameters
	usual int      // the parameter n, if it has one: where it is not given
	most  int
}

// call is a request for a page.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	values url.Values // those parameters that the page has
	n      int
}

// pages are all of them.
var pages = []page{
	{answer.Get(operator.OverviewPath), (*Handler).overview, nil, 0, 0},
	{answer.Get(operator.EventsPath), (*Handler).events, nil, 0, 0},
	{answer.Get(operator.PoliciesPath), (*Handler).policies, nil, 0, 0},
	{answer.Get(operator.RulesPath), (*Handler).rules, nil, 0, 0},
	{answer.Get(operator.KeysPath), (*Handler).keys, []string{inPolicy, "n"}, usualKeys, mostKeys},
	{answer.Get(operator.KeyPath), (*Handler).key, []string{inPolicy, inKey}, 0, 0},
	{answer.Get(operator.SearchPath), (*Handler).search, []string{inWord, "n"}, usualMentions, MostRefusals},
	{answer.Get(operator.LockoutsPath), (*Handler).lockouts, []string{inPolicy, "n"}, usualLockouts, mostLockouts},
	{answer.Get(operator.OverridesPath), (*Handler).overrides, nil, 0, 0},
	{answer.Get(operator.RefusalsPath), (*Handler).refusals, []string{inPolicy, inKey, "n"}, usualRefusals, MostRefusals},
	{answer.Get(operator.RefusalPath), (*Handler).refusal, []string{"id"}, 0, 0},
	{answer.Get(operator.ReportPath), (*Handler).report, []string{inPolicy}, 0, 0},
	{answer.Get(operator.ConfigurationPath), (*Handler).configuration, nil, 0, 0},
	{answer.Get(operator.ReplicasPath), (*Handler).replicas, nil, 0, 0},
	{answer.Get(operator.MembersPath), (*Handler).members, nil, 0, 0},
	{answer.Get(operator.AuditPath), (*Handler).audit, []string{"n"}, 100, adminguard.MostAudited},
	{answer.Post(operator.ExplainPath), (*Handler).explain, nil, 0, 0},
	{answer.Post(operator.UnlockPath), (*Handler).unlock, nil, 0, 0},
	{answer.Post(operator.OverridePath), (*Handler).override, nil, 0, 0},
	{answer.Post(operator.RestorePath), (*Handler).restore, nil, 0, 0},
	{answer.Post(operator.ResetPath), (*Handler).reset, nil, 0, 0},
	{answer.Post(operator.MemberRemovePath), (*Handler).memberRemove, nil, 0, 0},
	{answer.Post(operator.MemberAddPath), (*Handler).memberAdd, nil, 0, 0},
	{answer.Post(operator.ReloadPath), (*Handler).reload, nil, 0, 0},
}

var found = answer.NewPages(pages)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := h.serve(w, r); p != nil {
		p.Write(w)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *answer.Problem {
	// A caller that is not let in does not learn which pages there are.
	r, p := h.o.Guard.Enter(w, r)
	if p != nil {
		return p
	}
	at := found.ByPath[r.URL.Path]
	if at == nil {
		return answer.PlainProblem(http.StatusNotFound, "%s", found.Missing)
	}
	if wrong := at.WrongMethod(w, r); wrong != nil {
		return wrong
	}
	c := &call{w: w, r: r}
	if !at.IsPost() {
		if c.values, p = answer.Parameters(r, at.query...); p == nil {
			p = keyIn(c.values)
		}
		if p == nil && at.most > 0 {
			c.n, p = answer.Count(c.values, "n", at.usual, at.most)
		}
		if p != nil {
			return p
		}
	}
	reply, p := at.serve(h, c)
	if p != nil || reply == nil {
		return p
	}
	return answer.WriteJSON(w, reply)
}

// explain serves POST admin.ExplainPath.
func (h *Handler) explain(q *call) (any, *answer.Problem) {
	h.o.Explain(q.w, q.r)
	return nil, nil
}
