package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir/policy"
)

// MuxOptions configure a [Mux].
type MuxOptions struct {
	// Set has the policies that routes may have, and the rules of the limits that apply to every route: one without a Match is
	// the global limiter. Where a rule that is Final matches, the policies of routes do not apply. Required.
	Set *policy.Set
	// Engine are the options of the engine that decides.
	Engine policy.EngineOptions
	// Gate are those of the middleware. Engine, Routes and Route must be left out.
	Gate GateOptions
}

// Mux is an [http.ServeMux] whose handlers name their policies in code:
//
//	mux, err := httplimit.NewMux(httplimit.MuxOptions{Set: set})
//	...
//	mux.Handle("GET /healthz", health, httplimit.Disabled())
//	api := mux.Group(httplimit.WithPolicy("per-client"))
//	api.Handle("GET /items", items)
//	api.Handle("POST /login", login, httplimit.WithPolicy("login"))
//	handler, err := mux.Handler()
//
// The rules of the Set apply to each request, and then the policy of its route, if it has one: that of the route itself, or else
// that of the innermost group. A request is charged to all of these limits or to none, and counted once. Only the rules of the
// Set apply to requests that match no route. A route that is [Disabled], by itself or by a group around it, has no limit at all.
// The same key in two policies is two keys.
//
// Register the handlers first. Handler then checks the whole, and returns an error for a route with a policy that is not in the
// Set: a spelling mistake cannot leave a route without a limit. The zero Mux is not usable: call [NewMux].
type Mux struct {
	options MuxOptions
	mux     *http.ServeMux

	mu     sync.Mutex
	routes []route
	engine *policy.Engine
	gate   *Gate
}

// route is what was said about a pattern.
type route struct {
	pattern  string
	policy   string
	disabled bool
}

// RouteOption is the limit of a route, or of all routes of a group.
type RouteOption struct {
	policy   string
	disabled bool
}

// WithPolicy applies a policy of the Set. The one that was said last counts. A name that is not in the Set is an error of
// [Mux.Handler].
func WithPolicy(name string) RouteOption { return RouteOption{policy: name} }

// Disabled frees from all limits, those of the rules of the Set included. It wins over all other options, wherever it was
// said. A rule of the Set that denies a request is no limit, and does so nevertheless.
func Disabled() RouteOption { return RouteOption{disabled: true} }

// Group is a part of a [Mux] whose routes have options in common.
type Group struct {
	of      *Mux
	options []RouteOption
}

// NewMux returns a Mux without any route, or an error that names the option that cannot be used.
func NewMux(o MuxOptions) (*Mux, error) {
	switch {
	case o.Set == nil:
		return nil, optionError("MuxOptions.Set", "nil", "a set of policies and rules")
	case o.Gate.Engine != nil:
		return nil, optionError("MuxOptions.Gate.Engine", "set", "nil, as the Mux makes its own")
	case o.Gate.Routes != nil || o.Gate.Route != nil:
		return nil, optionError("MuxOptions.Gate.Routes", "set", "nil, as the Mux knows its routes")
	}
	return &Mux{options: o, mux: http.NewServeMux()}, nil
}

// Group is a group of routes.
func (m *Mux) Group(options ...RouteOption) *Group { return (&Group{of: m}).Group(options...) }

// Handle registers a handler outside of all groups: see [Group.Handle].
func (m *Mux) Handle(pattern string, handler http.Handler, options ...RouteOption) {
	(&Group{of: m}).Handle(pattern, handler, options...)
}

// HandleFunc is Handle with a function.
func (m *Mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request), options ...RouteOption) {
	(&Group{of: m}).HandleFunc(pattern, handler, options...)
}

// Group is a group within this one: its routes have the options of both.
func (g *Group) Group(options ...RouteOption) *Group {
	return &Group{of: g.of, options: slices.Concat(g.options, options)}
}

// Handle registers a handler for a pattern, as [http.ServeMux.Handle] does. It panics where that does, if the name of a
// policy is empty, and if [Mux.Handler] was called before.
func (g *Group) Handle(pattern string, handler http.Handler, options ...RouteOption) {
	r := route{pattern: pattern}
	for _, o := range slices.Concat(g.options, options) {
		switch {
		case o.disabled:
			r.disabled = true
		case o.policy == "":
			panic(fmt.Sprintf("weir: httplimit: %q: the name of the policy is empty", pattern))
		default:
			r.policy = o.policy
		}
	}
	m := g.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine != nil {
		panic(fmt.Sprintf("weir: httplimit: %q is registered after Mux.Handler was called: its limits would not apply", pattern))
	}
	m.mux.Handle(pattern, handler)
	m.routes = append(m.routes, r)
}

// HandleFunc is Handle with a function.
func (g *Group) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request), options ...RouteOption) {
	if handler == nil {
		panic("weir: httplimit: the handler is nil")
	}
	g.Handle(pattern, http.HandlerFunc(handler), options...)
}

// Handler ends the registration, and returns the handler of all routes. The error is an [errors.Join] of each route whose policy
// is not in the Set, and of what else cannot be used; then routes may still be registered. Later calls return the same handler.
func (m *Mux) Handler() (http.Handler, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine != nil {
		return m.gate.Handler(m.mux), nil
	}
	set, err := m.merge(m.options.Set)
	if err != nil {
		return nil, err
	}
	engine, err := policy.NewEngine(set, m.options.Engine)
	if err != nil {
		return nil, err
	}
	o := m.options.Gate
	o.Engine, o.Routes = engine, m.mux
	gate, err := NewGate(o)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	m.engine, m.gate = engine, gate
	return gate.Handler(m.mux), nil
}

// Engine is the engine that decides, to look at; nil before Handler was called. Replace its set with [Mux.Load], not with
// [policy.Engine.Load], which would forget the policies of the routes.
func (m *Mux) Engine() *policy.Engine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine
}

// Gate is the middleware, for its counts; nil before Handler was called.
func (m *Mux) Gate() *Gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gate
}

// ErrNotStarted is returned where a [Mux] needs its engine, before Handler was called.
var ErrNotStarted = errors.New("weir: httplimit: Mux.Handler was not called yet")

// Load replaces the set while requests are served, as [policy.Engine.Load] does. A set that lacks the policy of a route is
// refused, and the old one stays.
func (m *Mux) Load(set *policy.Set) ([]policy.Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine == nil {
		return nil, ErrNotStarted
	}
	if set == nil {
		return nil, optionError("Mux.Load: set", "nil", "a set of policies and rules")
	}
	merged, err := m.merge(set)
	if err != nil {
		return nil, err
	}
	return m.engine.Load(merged)
}

// merge is a set with the rules of the routes behind its own.
func (m *Mux) merge(set *policy.Set) (*policy.Set, error) {
	known := make(map[string]bool, len(set.Policies))
	for i := range set.Policies {
		known[set.Policies[i].Name] = true
	}
	var (
		errs     []error
		disabled []string
		names    []string // of policies, in the order of the routes
		byPolicy = map[string][]string{}
	)
	for _, r := range m.routes {
		if r.policy != "" && !known[r.policy] { // also of one that is disabled: it may be enabled again
			option := fmt.Sprintf("Mux: the policy of %q", r.pattern)
			errs = append(errs, optionError(option, fmt.Sprintf("%.80q", r.policy), namesOf(set)))
			continue
		}
		switch {
		case r.disabled:
			disabled = append(disabled, r.pattern)
		case r.policy != "":
			if byPolicy[r.policy] == nil {
				names = append(names, r.policy)
			}
			byPolicy[r.policy] = append(byPolicy[r.policy], r.pattern)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	merged := &policy.Set{Policies: set.Policies, Rules: slices.Clone(set.Rules)}
	taken := make(map[string]bool, len(set.Rules))
	for i := range set.Rules {
		taken[set.Rules[i].Name] = true
	}
	for i, name := range names {
		merged.Rules = append(merged.Rules, policy.Rule{
			Name:   ruleName(taken, "routes with "+name, i),
			Match:  policy.Match{Routes: byPolicy[name]},
			Limits: []policy.Use{{Policy: name}},
			Source: "Mux",
		})
	}
	if len(disabled) > 0 {
		merged.Rules = append(merged.Rules, policy.Rule{
			Name: ruleName(taken, "routes without limits", 0), Match: policy.Match{Routes: disabled}, Exempt: true, Source: "Mux",
		})
	}
	return merged, nil
}

// ruleName is a name for a rule that is not taken.
func ruleName(taken map[string]bool, name string, i int) string {
	const longest = 100 // of 128, for a number behind it
	if len(name) > longest {
		name = fmt.Sprintf("%s... (%d)", name[:longest], i+1)
	}
	unique := name
	for n := 2; taken[unique]; n++ {
		unique = fmt.Sprintf("%s (%d)", name, n)
	}
	taken[unique] = true
	return unique
}

// namesOf tells which policies a set has.
func namesOf(set *policy.Set) string {
	const most = 10
	var names []string
	for i := range set.Policies {
		if i == most {
			names = append(names, "...")
			break
		}
		names = append(names, fmt.Sprintf("%q", set.Policies[i].Name))
	}
	if len(names) == 0 {
		return "the name of a policy in the Set, which has none"
	}
	return "the name of a policy in the Set: " + strings.Join(names, ", ")
}
