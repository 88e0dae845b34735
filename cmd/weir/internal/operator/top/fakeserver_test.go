package top

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/screentest"
	"github.com/weirhq/weir/policy"
)

// fake is a server that answers the admin API with what a test has set.
type fake struct {
	t      *testing.T
	server *httptest.Server
	ends   chan struct{} // closed when the server does

	mu        sync.Mutex
	overview  operator.Overview
	keys      map[string][]operator.Key
	lockouts  []operator.Lockout
	overrides []operator.Override
	refusals  []operator.Refusal
	posted    []string
	unlocked  map[string]bool // keys
	asked     map[string]int
	streams   map[chan struct{}]bool
	// ticks is how many overviews a stream sends by itself: each half a second later than the one before, with 10 more requests.
	ticks int
}

var began = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, streams: map[chan struct{}]bool{}, asked: map[string]int{}, unlocked: map[string]bool{}}
	f.overview = operator.Overview{
		Version: "v9.9", Started: began, Now: began.Add(time.Hour), Config: operator.Loaded{File: "weir.yaml", Version: 7},
		Latency: operator.Latency{Measured: 10, P50: 0.000_001, P99: 0.000_02, P999: 0.001},
		Process: operator.Process{HeapBytes: 12 << 20, Goroutines: 9, OpenFiles: 12},
		Policies: []operator.Policy{
			f.policy("login", 50, 5, operator.Limit{Name: "1m", Holds: "5/min, burst 5"}, operator.Limit{Name: "1h", Holds: "20/h"}),
			f.policy("per-client", 5000, 900, operator.Limit{Holds: "10/s, burst 20"}),
			f.policy("tenant", 700, 0, operator.Limit{Holds: "1000/day"}),
		},
	}
	f.overview.Policies[0].Locked = 2
	f.keys = map[string][]operator.Key{"login": {
		key("login", "192.0.2.7", 240, 0, 5, 17), key("login", "192.0.2.8", 0, 2, 5, 3), key("login", "192.0.2.9", 0, 4, 5, 0),
		{Policy: "login", ID: "5f", Limits: []operator.KeyLimit{{Name: "1m", Holds: "5/min, burst 5", Tracked: true, Allowed: true, Limit: 5, Remaining: 5}}},
	}}
	for i := range 100 {
		f.keys["per-client"] = append(f.keys["per-client"], key("per-client", fmt.Sprintf("client-%03d", i), 0, int64(i/5), 20, uint64(100-i)))
	}
	f.lockouts = []operator.Lockout{{Policy: "login", Key: "192.0.2.7", For: 240}, {Policy: "login", Key: "192.0.2.66", For: 30}}
	f.overrides = []operator.Override{{
		Policy: "per-client", Key: "acme", Limits: map[string]string{"": "100/s, burst 200"}, For: 540, By: "alice", Reason: "launch day",
	}}
	for i := range 30 {
		f.refusals = append(f.refusals, operator.Refusal{
			ID: fmt.Sprintf("ref%03d", i), Time: began.Add(-time.Duration(i) * time.Second), Protocol: "http", Method: "POST", Path: "/login",
			Client: "192.0.2.7", Reason: "limited", RetryAfter: 12, Version: 7,
			Limits: []operator.RefusedLimit{{
				Policy: "login", Limit: "1m", Holds: "5/min, burst 5", Rule: "logins", Source: "weir.yaml:9:5", Key: "192.0.2.7", Cost: 1,
				Reason: "limited", Max: 5, RetryAfter: 12, ResetAfter: 60,
			}},
		})
	}
	f.serve("127.0.0.1:0")
	return f
}

func (f *fake) policy(name string, granted, refused uint64, limits ...operator.Limit) operator.Policy {
	return operator.Policy{
		PolicyReport: policy.PolicyReport{Name: name, Allowed: granted, Refused: refused, Keys: 40, MaxKeys: 1000}, Limits: limits,
		Key: "client.ip", Fail: "open", Source: "weir.yaml:3:3",
	}
}

func key(policyName, name string, locked float64, left, of int64, refused uint64) operator.Key {
	return operator.Key{
		Policy: policyName, Key: name, Named: true, LockedFor: locked, Limits: []operator.KeyLimit{{
			Name: "1m", Holds: "5/min, burst 5", Tracked: true, Allowed: left > 0, Reason: "limited", Limit: of, Remaining: left, RetryAfter: 12,
			ResetAfter: 60, Refused: refused,
		}},
	}
}

// key is the state of a key, with all limits of its policy.
func (f *fake) key(policyName, name string) operator.Key {
	k := key(policyName, name, 0, 0, 5, 17)
	k.RecentRefusals = 3
	for _, p := range f.overview.Policies {
		if p.Name != policyName {
			continue
		}
		for i, l := range p.Limits {
			if i > 0 {
				k.Limits = append(k.Limits, operator.KeyLimit{Tracked: true, Allowed: true, Limit: 20, Remaining: 20})
			}
			k.Limits[i].Name, k.Limits[i].Holds = l.Name, l.Holds
		}
	}
	for _, l := range f.lockouts {
		if l.Policy == policyName && l.Key == name && !f.unlocked[name] {
			k.LockedFor = l.For
		}
	}
	return k
}

// serve begins to answer at an address.
func (f *fake) serve(address string) {
	f.t.Helper()
	var (
		l   net.Listener
		err error
	)
	// The port of a server that has just been closed may not be free at once.
	for late := time.Now().Add(screentest.Patience); ; {
		var config net.ListenConfig
		if l, err = config.Listen(f.t.Context(), "tcp", address); err == nil || time.Now().After(late) {
			break
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.server, f.ends = httptest.NewUnstartedServer(f), make(chan struct{})
	_ = f.server.Listener.Close()
	f.server.Listener = l
	f.server.Start()
	f.t.Cleanup(f.stop)
}

// stop is the end of the server, with all streams: also of clients that come while it ends.
func (f *fake) stop() {
	select {
	case <-f.ends:
		return
	default:
	}
	close(f.ends)
	f.server.CloseClientConnections()
	f.server.Close()
}

// change changes what is answered, and tells it to all who listen, half a second later by the clock of the server.
func (f *fake) change(how func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overview.Now = f.overview.Now.Add(500 * time.Millisecond)
	f.overview.Policies = slices.Clone(f.overview.Policies)
	how(f)
	for s := range f.streams {
		select {
		case s <- struct{}{}:
		default:
		}
	}
}

// listened waits until a client listens.
func (f *fake) listened(t *testing.T) {
	t.Helper()
	for late := time.Now().Add(screentest.Patience); ; {
		f.mu.Lock()
		n := len(f.streams)
		f.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatal("no client listens")
		}
		runtime.Gosched()
	}
}

// tick makes the next streams send three overviews by themselves.
func (f *fake) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticks = 3
}

// more counts requests.
func (f *fake) more(policyAt int, granted, refused uint64) {
	p := &f.overview.Policies[policyAt]
	p.Allowed += granted
	p.Refused += refused
	f.overview.Requests += granted + refused
	f.overview.Refused += refused
}

// done are the changes that were asked for.
func (f *fake) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.posted)
}

// ServeHTTP answers.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == operator.EventsPath {
		f.stream(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[r.URL.Path]++
	q := r.URL.Query()
	var v any
	switch r.URL.Path {
	case operator.OverviewPath:
		v = f.overview
	case operator.PoliciesPath:
		v = f.overview.Policies
	case operator.KeysPath:
		v = f.keys[q.Get("policy")]
	case operator.KeyPath:
		v = f.key(q.Get("policy"), q.Get("key"))
	case operator.LockoutsPath:
		v = f.lockouts
	case operator.OverridesPath:
		v = f.overrides
	case operator.RefusalsPath:
		v = operator.Refusals{Refusals: f.refusals}
	case operator.UnlockPath, operator.RestorePath:
		var c operator.Change
		_ = json.NewDecoder(r.Body).Decode(&c)
		if r.URL.Path == operator.UnlockPath && c.Reason != "fail" {
			f.unlocked[c.Key] = true
		}
		f.posted = append(f.posted, fmt.Sprintf("%s %s %s %s", r.URL.Path, c.Policy, c.Key, c.Reason))
		if c.Reason == "fail" {
			w.WriteHeader(http.StatusServiceUnavailable)
			v = map[string]any{"status": 503, "detail": "the server cannot do that now"}
			break
		}
		v = operator.Changed{Changed: true}
	case operator.OverridePath:
		var o operator.Override
		_ = json.NewDecoder(r.Body).Decode(&o)
		f.posted = append(f.posted, fmt.Sprintf("%s %s %s %v %t %g %s", r.URL.Path, o.Policy, o.Key, o.Limits, o.Unlimited, o.For, o.Reason))
		v = operator.Changed{Changed: true}
	default:
		w.WriteHeader(http.StatusNotFound)
		v = map[string]any{"status": 404, "detail": "there is no such page"}
	}
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	now := make(chan struct{}, 1)
	now <- struct{}{}
	f.mu.Lock()
	f.streams[now] = true
	ends := f.ends
	f.asked[operator.EventsPath]++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.streams, now)
		f.mu.Unlock()
	}()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-ends:
			return
		case <-now:
		}
		f.mu.Lock()
		text, err := json.Marshal(f.overview)
		if f.ticks > 0 {
			f.ticks--
			f.overview.Now = f.overview.Now.Add(500 * time.Millisecond)
			f.more(0, 7, 3)
			now <- struct{}{}
		}
		f.mu.Unlock()
		if err != nil {
			f.t.Error(err)
			return
		}
		if _, err := fmt.Fprintf(w, "event: overview\ndata: %s\n\n", text); err != nil {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}
