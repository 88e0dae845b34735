package adminapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

const token = "0123456789abcdef"

const configured = `version: 1
policies:
  login:
    key: client.ip
    limit: 2/min
    lockout: {refusals: 2, within: 1m, for: 10m}
  api:
    key: client.ip
    limits: [{rate: 5/s, burst: 10, name: short}, {rate: 100/h, name: long}]
    candidate: {limits: [{rate: 4/s, burst: 10, name: short}, {rate: 100/h, name: long}]}
  jobs: {limits: [{algorithm: concurrency, permits: 3}]}
rules:
  - {name: sign-in, match: {path: /login, method: POST}, limits: login, final: true}
  - {name: own, match: {client: 10.0.0.0/8, header: {X-Debug: "*"}}, exempt: true}
  - {name: all, limits: [api, jobs]}
  - {name: spent, match: {path: /spent}, limits: api, charge: afterwards}
`

// server is a handler with all that it tells of. The clock of its limits stands still.
type server struct {
	*adminapi.Handler

	t        *testing.T
	path     string // of the configuration
	limits   *live.Limits
	refusals *adminapi.Refusals
	audit    *adminguard.AuditLog
	status   map[string]any
	unready  error
}

func newServer(t *testing.T, text string) *server {
	t.Helper()
	s := &server{t: t, path: filepath.Join(t.TempDir(), "weir.yaml")}
	s.write(text)
	var err error
	if s.refusals, err = adminapi.NewRefusals(nil); err != nil {
		t.Fatal(err)
	}
	silent := slog.New(slog.DiscardHandler)
	s.limits, err = live.Load(live.Options{
		Path: s.path, Logger: silent, Engine: policy.EngineOptions{Clock: manualclock.New(0), OnRefused: s.refusals.Refused},
		Parse: func(files live.Files) (live.Parsed, error) {
			secrets := map[string]string{}
			f, parseErr := config.Parse("weir.yaml", files.File.Data, config.Options{Env: func(name string) (string, bool) {
				secrets[name] = "hush-hush"
				return secrets[name], true
			}})
			if parseErr != nil {
				return live.Parsed{}, parseErr
			}
			return live.Parsed{Set: f.Set, Secrets: secrets}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(s.limits)
	return s
}

// serve makes the handler.
func (s *server) serve(limits *live.Limits) {
	s.t.Helper()
	s.limits = limits
	s.t.Cleanup(func() { _ = limits.Engine().Close() })
	guard, err := adminguard.New(adminguard.Options{
		Tokens: []adminguard.Token{adminguard.TokenOf("alice", token)}, Rate: weir.PerSecond(100_000), Burst: 100_000,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.audit, err = adminguard.OpenAudit(adminguard.AuditOptions{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		s.t.Fatal(err)
	}
	check := checkapi.NewHandler(checkapi.Options{Limits: limits})
	s.Handler = adminapi.New(adminapi.Options{
		Members: &nodes{names: []string{"node1", "node2"}},
		Limits:  limits, Guard: guard, Audit: s.audit, Refusals: s.refusals, Status: func() map[string]any { return s.status },
		Explain: check.Explain, Version: "v1.2.3", Started: time.Now(), Ready: func() error { return s.unready },
	})
}

func (s *server) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// request is a request with the right token.
func (s *server) request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://weir.example"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// ask sends a request, and reads the answer into v unless that is nil.
func (s *server) ask(method, path, body string, want int, v any) *httptest.ResponseRecorder {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, s.request(method, path, body))
	if w.Code != want {
		s.t.Errorf("%s %s %s: %d, want %d: %s", method, path, body, w.Code, want, w.Body)
	}
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			s.t.Fatalf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w
}

// send sends n requests to the engine, and returns the verdict on the last one.
func (s *server) send(n int, r policy.Request) (v policy.Verdict) {
	s.t.Helper()
	r.Protocol, r.Context = "http", s.t.Context()
	for range n {
		s.limits.Engine().Take(&r, &v)
		v.Release()
	}
	return v
}

func (s *server) login(n int, client string) policy.Verdict {
	s.t.Helper()
	return s.send(n, policy.Request{Method: "POST", Path: "/login", Client: address(client)})
}

// TestOverview has the counts, and the policies in words.
func TestOverview(t *testing.T) {
	s := newServer(t, configured)
	s.status = map[string]any{"resp": map[string]int{"clients": 3}, "store": "redis", "cluster": "etcd"}
	s.login(3, "192.0.2.1")
	s.send(1, policy.Request{Path: "/", Client: address("192.0.2.1")})
	var o operator.Overview
	s.ask("GET", operator.OverviewPath, "", 200, &o)
	if o.Version != "v1.2.3" || o.Requests != 4 || o.Refused != 1 || o.Config.Version != 1 || o.Config.File != s.path || o.Draining ||
		o.Process.Goroutines == 0 || o.Process.HeapBytes == 0 || len(o.Fronts) != 1 || o.Fronts["resp"] == nil || len(o.Policies) != 3 {
		t.Errorf("%+v", o)
	}
	if o.NotReady != "" {
		t.Error(o.NotReady)
	}
	s.unready = errors.New("weir: no owner can be reached")
	if s.ask("GET", operator.OverviewPath, "", 200, &o); o.NotReady != s.unready.Error() {
		t.Errorf("%q", o.NotReady)
	}
	var policies []operator.Policy
	s.ask("GET", operator.PoliciesPath, "", 200, &policies)
	login := policies[slices.IndexFunc(policies, func(p operator.Policy) bool { return p.Name == "login" })]
	if login.Allowed != 2 || login.Refused != 1 || login.Keys != 1 || login.Key != "client.ip" || login.Fail != "closed" ||
		len(login.Limits) != 1 || login.Limits[0] != (operator.Limit{Name: "1m", Holds: "2/min, burst 2"}) ||
		!strings.HasPrefix(login.Lockout, "after 2 refusals") || login.Source == "" {
		t.Errorf("%+v", login)
	}
	api := policies[slices.IndexFunc(policies, func(p operator.Policy) bool { return p.Name == "api" })]
	if len(api.Candidate) != 2 || api.Candidate[0].Holds != "4/s, burst 10" || api.Difference == nil || api.Difference.Requests != 1 {
		t.Errorf("%+v", api)
	}
	var rules []operator.Rule
	s.ask("GET", operator.RulesPath, "", 200, &rules)
	got := fmt.Sprintln(len(rules), rules[0].Match, rules[0].Matched, rules[0].Final, rules[1].Match, rules[1].Exempt, rules[2].Match,
		rules[2].Limits, rules[2].Afterwards, rules[3].Afterwards)
	if want := "4 method POST, path /login 3 true client 10.0.0.0/8, header X-Debug true all requests [api jobs] false true\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var replicas map[string]string
	s.ask("GET", operator.ReplicasPath, "", 200, &replicas)
	if replicas["store"] != "redis" || replicas["cluster"] != "etcd" {
		t.Errorf("%v", replicas)
	}
}

// TestWhyOneWasRefused: from the ID that the client has to the rule, the key and the numbers.
func TestWhyOneWasRefused(t *testing.T) {
	s := newServer(t, configured)
	v := s.login(3, "192.0.2.1")
	s.login(3, "192.0.2.2")
	var all operator.Refusals
	s.ask("GET", operator.RefusalsPath+"?policy=login&key=192.0.2.1", "", 200, &all)
	if len(all.Refusals) != 1 || all.Kept != 2 {
		t.Fatalf("%+v", all)
	}
	id := fmt.Sprintf("%016x", v.RefusalID)
	var one operator.Refusal
	s.ask("GET", operator.RefusalPath+"?id="+id, "", 200, &one)
	if one.ID != id || one.ID != all.Refusals[0].ID || one.Path != "/login" || one.Limits[0].Rule != "sign-in" || one.Limits[0].Key != "192.0.2.1" ||
		one.Limits[0].Holds != "2/min, burst 2" || one.Limits[0].RetryAfter <= 0 {
		t.Errorf("%+v", one)
	}
	for query, status := range map[string]int{"?id=0000000000000001": 404, "?id=x": 400, "": 400} {
		s.ask("GET", operator.RefusalPath+query, "", status, nil)
	}
}

// TestKeys, those under the most pressure first, and one of them.
func TestKeys(t *testing.T) {
	s := newServer(t, configured)
	s.login(1, "192.0.2.1")
	s.login(3, "192.0.2.2")
	s.login(4, "192.0.2.3")
	var keys []operator.Key
	s.ask("GET", operator.KeysPath+"?policy=login&n=2", "", 200, &keys)
	if len(keys) != 2 || keys[0].Key != "192.0.2.3" || keys[0].LockedFor != 600 || keys[1].Key != "192.0.2.2" || !keys[1].Named {
		t.Errorf("%+v", keys)
	}
	var key operator.Key
	s.ask("GET", operator.KeyPath+"?policy=login&key=192.0.2.2", "", 200, &key)
	if key.RecentRefusals != 1 || len(key.Limits) != 1 || key.Limits[0].Allowed || key.Limits[0].Limit != 2 || key.Limits[0].RetryAfter <= 0 {
		t.Errorf("%+v", key)
	}
	var lockouts []operator.Lockout
	s.ask("GET", operator.LockoutsPath, "", 200, &lockouts)
	if len(lockouts) != 1 || lockouts[0].Policy != "login" || lockouts[0].Key != "192.0.2.3" || lockouts[0].For != 600 {
		t.Errorf("%+v", lockouts)
	}
	var report operator.Report
	text := s.ask("GET", operator.ReportPath+"?policy=login", "", 200, nil)
	if body := text.Body.String(); !strings.Contains(body, "policy login: enforce") || !strings.Contains(body, "192.0.2.3\n") ||
		text.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Error(body)
	}
	r := s.request("GET", operator.ReportPath+"?policy=login", "")
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || report.Policy.Name != "login" || len(report.Top) != 3 {
		t.Errorf("%v %+v", err, report)
	}
}

// TestChanges: what each of them does, and what the audit log has of it: who, from where, what, why, and what became of it.
func TestChanges(t *testing.T) {
	s := newServer(t, configured)
	var changed operator.Changed
	audited := func(want operator.AuditEntry) {
		t.Helper()
		got := s.audit.Last(1)[0]
		if time.Since(got.Time) > time.Hour || got.Time.Location() != time.UTC {
			t.Errorf("the time is %v", got.Time)
		}
		want.Time, want.Who, want.From = got.Time, "alice", "192.0.2.1"
		if got != want {
			t.Errorf("audited %+v\nwant %+v", got, want)
		}
	}
	s.login(4, "192.0.2.9")
	s.ask("POST", operator.UnlockPath, `{"policy":"login","key":"192.0.2.9","reason":"a customer"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "unlock", Policy: "login", Key: "192.0.2.9", Reason: "a customer", Result: "ok"})
	if v := s.login(1, "192.0.2.9"); !changed.Changed || v.Decision().Reason != weir.ReasonLimited {
		t.Errorf("%+v %v", changed, v.Decision())
	}
	s.ask("POST", operator.UnlockPath, `{"policy":"login","key":"nobody"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "unlock", Policy: "login", Key: "nobody", Result: "it was not locked out"})

	s.ask("POST", operator.ResetPath, `{"policy":"login","key":"192.0.2.9","reason":"again"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "reset", Policy: "login", Key: "192.0.2.9", Reason: "again", Result: "ok"})
	if v := s.login(1, "192.0.2.9"); !v.Allowed {
		t.Errorf("%v", v.Decision())
	}

	s.ask("POST", operator.OverridePath, `{"policy":"login","key":"192.0.2.9","limits":{"":"60/min, burst 50"},"for":600,"reason":"launch"}`, 200, &changed)
	audited(operator.AuditEntry{
		Action: "override", Policy: "login", Key: "192.0.2.9", Detail: "60/min, burst 50 for 10m", Reason: "launch", Result: "ok",
	})
	if v := s.login(1, "192.0.2.9"); !v.Allowed || v.Decision().Limit != 50 || changed.Replicas != operator.ThisReplica {
		t.Errorf("%+v, in %q", v.Decision(), changed.Replicas)
	}
	var overrides []operator.Override
	s.ask("GET", operator.OverridesPath, "", 200, &overrides)
	if len(overrides) != 1 || overrides[0].By != "alice" || overrides[0].Reason != "launch" || overrides[0].For != 600 ||
		overrides[0].Limits["1m"] != "60/min, burst 50" || time.Since(overrides[0].Since) > time.Hour {
		t.Errorf("%+v", overrides)
	}
	var key operator.Key
	s.ask("GET", operator.KeyPath+"?policy=login&key=192.0.2.9", "", 200, &key)
	if key.Override == nil || key.Override.By != "alice" || !strings.HasPrefix(key.Limits[0].Holds, "60/min") {
		t.Errorf("%+v", key)
	}
	s.ask("POST", operator.RestorePath, `{"policy":"login","key":"192.0.2.9"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "restore", Policy: "login", Key: "192.0.2.9", Result: "ok"})
	s.ask("POST", operator.RestorePath, `{"policy":"login","key":"192.0.2.9"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "restore", Policy: "login", Key: "192.0.2.9", Result: "there was no override"})
	s.ask("POST", operator.OverridePath, `{"policy":"login","key":"vip","unlimited":true,"for":1.5}`, 200, &changed)
	audited(operator.AuditEntry{Action: "override", Policy: "login", Key: "vip", Detail: "unlimited for 1.5s", Result: "ok"})
	s.ask("POST", operator.OverridePath, `{"policy":"api","key":"k","limits":{"long":"1000/h"},"for":60}`, 200, &changed)
	audited(operator.AuditEntry{
		Action: "override", Policy: "api", Key: "k", Detail: "short 5/s, burst 10; long 1000/h, burst 1000 for 1m", Result: "ok",
	})

	s.write(strings.Replace(configured, "2/min", "3/min", 1))
	s.ask("POST", operator.ReloadPath, `{"reason":"more"}`, 200, &changed)
	audited(operator.AuditEntry{Action: "reload", Detail: "version 2, 1 change", Reason: "more", Result: "ok"})
	if !changed.Changed || changed.Version != 2 || changed.Changes != 1 {
		t.Errorf("%+v", changed)
	}
	s.write("version: 7")
	s.ask("POST", operator.ReloadPath, `{}`, 422, nil)
	if got := s.audit.Last(1)[0]; got.Action != "reload" || !strings.HasPrefix(got.Result, "the configuration cannot be used") {
		t.Errorf("%+v", got)
	}
	var c operator.Configuration
	s.ask("GET", operator.ConfigurationPath, "", 200, &c)
	if len(c.History) != 2 || c.History[0].Cause != "API" || len(c.History[0].Mistakes) == 0 || len(c.History[1].Changes) != 1 ||
		!strings.Contains(c.Text, "3/min") || c.Version != 2 || c.Reloads != 1 || c.Refused != 1 || len(c.Rules) != 4 {
		t.Errorf("%+v", c)
	}
	var entries []operator.AuditEntry
	s.ask("GET", operator.AuditPath+"?n=3", "", 200, &entries)
	if len(entries) != 3 || entries[0].Action != "reload" || entries[2].Key != "k" {
		t.Errorf("%+v", entries)
	}
}

// nodes are those of a cluster.
type nodes struct{ names []string }

func (n *nodes) Members(context.Context) ([]etcd.Member, error) {
	var all []etcd.Member
	for i, name := range n.names {
		all = append(all, etcd.Member{ID: uint64(i) + 10, Name: name, URL: "http://" + name, Started: true, Leader: i == 1})
	}
	return all, nil
}

func (n *nodes) RemoveMember(_ context.Context, name string) error {
	at := slices.Index(n.names, name)
	if at < 0 {
		return etcd.ErrNoMember
	}
	n.names = slices.Delete(n.names, at, at+1)
	return nil
}

func (n *nodes) AddMember(_ context.Context, name, at string) error {
	if slices.Contains(n.names, name) || at == "" {
		return &weir.OptionError{Option: "name", Value: name, Accepted: "another one"}
	}
	n.names = append(n.names, name)
	return nil
}

// TestMembers: nodes are listed, removed and added, and what cannot be done is told.
// TestLimitsLeftOutStay: an override of one limit leaves a key the others of its own. Those of a tier are not known without a
// request, so that all must be named.
func TestLimitsLeftOutStay(t *testing.T) {
	s := newServer(t, `version: 1
policies:
  org:
    key: request.headers["x-org"]
    limits: [{rate: 5/s, name: short}, {rate: 100/h, name: long}]
    keys: {acme: {limits: [{rate: 20/s, name: short}, {rate: 5000/h, name: long}]}}
    tiers:
      by: request.headers["x-plan"]
      gold: {limits: [{rate: 50/s, name: short}, {rate: 9000/h, name: long}]}
rules: [{name: all, limits: org}]
`)
	s.ask("POST", operator.OverridePath, `{"policy":"org","key":"acme","limits":{"short":"30/s"},"for":60}`, 200, nil)
	var key operator.Key
	s.ask("GET", operator.KeyPath+"?policy=org&key=acme", "", 200, &key)
	if key.Limits[0].Holds != "30/s, burst 30" || key.Limits[1].Holds != "5000/h, burst 5000" {
		t.Errorf("%+v", key.Limits)
	}
	s.ask("POST", operator.OverridePath, `{"policy":"org","key":"other","limits":{"short":"30/s"},"for":60}`, 400, nil)
	s.ask("POST", operator.OverridePath, `{"policy":"org","key":"other","limits":{"short":"30/s","long":"90/h"},"for":60}`, 200, nil)
}

func TestMembers(t *testing.T) {
	s := newServer(t, configured)
	var all []operator.Member
	s.ask("GET", operator.MembersPath, "", 200, &all)
	if want := (operator.Member{ID: "b", Name: "node2", URL: "http://node2", Started: true, Votes: true, Leads: true}); len(all) != 2 || all[1] != want {
		t.Errorf("%+v", all)
	}
	s.ask("POST", operator.MemberAddPath, `{"name":"node1","url":"http://node1"}`, 422, nil)
	s.ask("POST", operator.MemberRemovePath, `{"name":"node1"}`, 200, nil)
	s.ask("POST", operator.MemberRemovePath, `{"name":"node1"}`, 404, nil)
	s.ask("POST", operator.MemberAddPath, `{"name":"node1","url":"http://node1"}`, 200, nil)
	s.ask("POST", operator.MemberAddPath, `{"name":"node1","address":"http://node1"}`, 400, nil)
	s.ask("GET", operator.MembersPath, "", 200, &all)
	if len(all) != 2 || s.audit.Last(1)[0].Detail != "node1 http://node1" {
		t.Errorf("%+v, %+v", all, s.audit.Last(1))
	}
}

// TestEveryChangeIsAudited: there is no page that changes something and is not in the audit log.
func TestEveryChangeIsAudited(t *testing.T) {
	s := newServer(t, configured)
	bodies := map[string]string{
		operator.OverridePath: `{"policy":"login","key":"k","unlimited":true,"for":60,"reason":"why"}`,
		operator.ReloadPath:   `{"reason":"why"}`,

		operator.MemberRemovePath: `{"name":"node1","reason":"why"}`,
		operator.MemberAddPath:    `{"name":"node3","url":"http://127.0.0.1:7191","reason":"why"}`,
	}
	n := 0
	for path, operations := range document(t) {
		if _, post := operations["post"]; !post || path == operator.ExplainPath || !strings.HasPrefix(path, "/v1/admin/") {
			continue
		}
		n++
		body, ok := bodies[path]
		if !ok {
			body = `{"policy":"login","key":"k","reason":"why"}`
		}
		before := len(s.audit.Last(1000))
		s.ask("POST", path, body, 200, nil)
		all := s.audit.Last(1000)
		if len(all) != before+1 {
			t.Fatalf("%s: %d entries", path, len(all)-before)
		}
		if e := all[0]; e.Who != "alice" || e.From != "192.0.2.1" || "/v1/admin/"+e.Action != path || e.Reason != "why" || e.Time.IsZero() ||
			e.Result == "" {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if n != 7 {
		t.Errorf("%d pages that change something", n)
	}
}

// document are the operations of the whole API.
func document(t *testing.T) map[string]map[string]struct {
	Responses  map[string]any `json:"responses"`
	Parameters []struct {
		Name string `json:"name"`
	} `json:"parameters"`
} {
	t.Helper()
	text, err := adminapi.OpenAPI(checkapi.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths map[string]map[string]struct {
			Responses  map[string]any `json:"responses"`
			Parameters []struct {
				Name string `json:"name"`
			} `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d.Paths
}

// TestProblems: what is wrong with a request is named, and nothing is changed or audited.
func TestProblems(t *testing.T) {
	s := newServer(t, configured)
	long := strings.Repeat("x", 1025)
	change := fmt.Sprintf
	for _, c := range []struct {
		method, path, body string
		status             int
		field, detail      string
	}{
		{"GET", "/v1/admin/none", "", 404, "", "there is no such page; there are GET /v1/admin/overview"},
		{"POST", operator.OverviewPath, "{}", 405, "method", `method "POST": must be GET or HEAD`},
		{"GET", operator.UnlockPath, "", 405, "method", "must be POST"},
		{"GET", operator.OverviewPath + "?x=1", "", 400, "parameter", "there are none"},
		{"GET", operator.KeysPath + "?policy=login&x=1", "", 400, "parameter", "must be policy or n"},
		{"GET", operator.KeysPath + "?policy=login&n=0", "", 400, "n", "must be a whole number from 1 to 10000"},
		{"GET", operator.KeysPath + "?policy=login&n=9&n=9", "", 400, "n", "must be there once"},
		{"GET", operator.KeysPath + "?policy=%zz", "", 400, "query", "must be parameters"},
		{"GET", operator.KeysPath, "", 400, "policy", "must be the name of a policy"},
		{"GET", operator.KeysPath + "?policy=none", "", 404, "policy", "there is no policy of this name"},
		{"GET", operator.KeyPath + "?policy=login&key=" + long, "", 400, "key", "at most 1024 bytes"},
		{"GET", operator.KeysPath + "?policy=LOGIN", "", 404, "policy", `there is no policy of this name; did you mean "login"?`},
		{"GET", operator.KeysPath + "?policy=api/1m", "", 404, "policy", `there is no policy of this name; did you mean "api"?`},
		{"GET", operator.LockoutsPath + "?policy=none", "", 404, "policy", "there is no policy of this name"},
		{"GET", operator.ReportPath, "", 400, "policy", "must be the name of a policy"},
		{"POST", operator.UnlockPath, `{`, 400, "", "the body must be a JSON object"},
		{"POST", operator.UnlockPath, `{} {}`, 400, "", "expected nothing after the object"},
		{"POST", operator.UnlockPath, ` `, 400, "", "the body must be a JSON object, and is empty"},
		{"POST", operator.UnlockPath, `{"policy":`, 400, "", "the body must be a JSON object, and ends within it"},
		{"POST", operator.UnlockPath, `[]`, 400, "", "the body must be a JSON object, not an array"},
		{"POST", operator.UnlockPath, `{"policy":"login","nobody":"knows"}`, 400, "member", `"nobody": is not known: there are policy, key, reason`},
		{"POST", operator.UnlockPath, `{"policy":7}`, 400, "policy", "policy: must be a string, not a number"},
		{"POST", operator.UnlockPath, `{"policy":"login"}`, 400, "key", "must be there: keys of policy login are client.ip"},
		{"POST", operator.OverridePath, `{"policy":"login","unlimited":true,"for":60}`, 400, "key", "must be there: keys of policy login"},
		{"POST", operator.UnlockPath, `{"policy":"none","key":"k"}`, 404, "policy", "there is no policy of this name"},
		{"POST", operator.UnlockPath, change(`{"policy":"login","key":%q}`, long), 400, "key", "at most 1024 bytes"},
		{"POST", operator.UnlockPath, change(`{"policy":"login","key":"k","reason":%q}`, long), 400, "reason", "at most 1024 bytes"},
		{"POST", operator.UnlockPath, `{"policy":"login","key":"k","reason":"a\nb"}`, 400, "reason", "printable"},
		{"POST", operator.UnlockPath, strings.Repeat(" ", 65<<10), 413, "body", "at most 65536 bytes"},
		{"POST", operator.ReloadPath, `{"policy":"login"}`, 400, "policy", "must not be there"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","for":60}`, 400, "limits", "must be there, or unlimited true"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","for":60,"limits":{"":"1/s","1m":"2/s"}}`, 400, "limits", "must have one member"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","for":60,"unlimited":true,"limits":{"":"1/s"}}`, 400, "limits", "not both"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true}`, 400, "for", "from 1 to 316224000"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true,"for":1e300}`, 400, "for", "from 1 to 316224000"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true,"for":60,"by":"bob"}`, 400, "by", "must not be there"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true,"for":"1h"}`, 400, "for", "must be a number, not a string"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true,"for":1e400}`, 400, "for", "must be a number, not 1e400"},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","limits":"1/s","for":60}`, 400, "limits", `an object such as {"1m": "100/min"}`},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","limit":{},"for":60}`, 400, "member", `did you mean "limits"?`},
		{
			"POST", operator.OverridePath, `{"policy":"login","key":"k","limits":{"2m":"1/s"},"for":60}`, 400, "limits",
			`limits "2m": must be the name of a limit of policy login: 1m`,
		},
		{"POST", operator.OverridePath, `{"policy":"login","key":"k","limits":{"1m":"fast"},"for":60}`, 400, "limits.1m", "must be a rate such as"},
		{
			"POST", operator.OverridePath, `{"policy":"api","key":"k","limits":{"":"1/s"},"for":60}`, 400, "limits",
			`limits "1/s": must have the name of the limit that it is for, as policy api has several: short, long`,
		},
		{
			"POST", operator.OverridePath, `{"policy":"api","key":"k","limits":{"short":"1/s, burst 9000000000000000"},"for":60}`, 400,
			"limits.short", "the burst must be from 1 to 10^15",
		},
		{
			"POST", operator.OverridePath, `{"policy":"jobs","limits":{"":"9000000000000000"},"for":60}`, 400,
			"limits", `limits "9000000000000000": must be from 1 to 10^15`,
		},
	} {
		var p struct {
			Status        int
			Field, Detail string
			Policies      []string
		}
		w := s.ask(c.method, c.path, c.body, c.status, &p)
		if p.Status != c.status || p.Field != c.field || !strings.Contains(p.Detail, c.detail) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %.80s: %s", c.method, c.path, c.body, w.Body)
		}
		if strings.Contains(c.detail, "there is no policy of this name") && fmt.Sprint(p.Policies) != "[api jobs login]" {
			t.Errorf("%q", p.Policies)
		}
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"} {
		r := s.request("POST", operator.UnlockPath, `{"policy":"login","key":"k"}`)
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%q: %d", kind, w.Code)
		}
	}
	if entries := s.audit.Last(10); len(entries) != 0 {
		t.Errorf("%+v", entries)
	}
	s.ask("POST", operator.OverridePath, `{"policy":"login","key":"k","limits":{"1m":"1/s, burst 900000000000000000"},"for":60}`, 400, nil)
	if s.limits.Engine().Overrides() != nil {
		t.Error("something was overridden")
	}
	// A change that the engine refuses is in the audit log, too.
	_ = s.limits.Engine().Close()
	s.ask("POST", operator.OverridePath, `{"policy":"login","key":"k","unlimited":true,"for":60}`, 503, nil)
	if e := s.audit.Last(1); len(e) != 1 || e[0].Action != "override" || !strings.Contains(e[0].Result, "closed") {
		t.Errorf("audited as %+v", e)
	}
}

// TestNobodyIsToldAnything without the token, not even which pages there are.
func TestNobodyIsToldAnything(t *testing.T) {
	s := newServer(t, configured)
	for path, operations := range document(t) {
		if !strings.HasPrefix(path, "/v1/admin/") {
			continue
		}
		for method := range operations {
			for _, authorization := range []string{"", "Bearer wrong", "Bearer " + token + "0", "Basic " + token} {
				r := s.request(strings.ToUpper(method), path, "{}")
				r.Header.Set("Authorization", authorization)
				r.RemoteAddr = "[2001:db8:" + fmt.Sprintf("%x", len(path)) + "::1]:1" // each of its own
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				if w.Code != 401 && w.Code != 429 {
					t.Errorf("%s %s %q: %d", method, path, authorization, w.Code)
				}
			}
		}
	}
	r := s.request("GET", "/v1/admin/none", "")
	r.Header.Del("Authorization")
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != 401 {
		t.Errorf("%d", w.Code)
	}
}

// TestDocument: what is answered is as the document says, each parameter that it names is accepted, and each page is in it.
func TestDocument(t *testing.T) {
	s := newServer(t, configured)
	v := s.login(4, "192.0.2.1")
	s.ask("POST", operator.OverridePath, `{"policy":"login","key":"192.0.2.1","limits":{"":"5/s"},"for":60}`, 200, nil)
	text, err := adminapi.OpenAPI(checkapi.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"policy": "login", "key": "192.0.2.1", "word": "192.0.2.1", "n": "3", "id": fmt.Sprintf("%016x", v.RefusalID)}
	pages := document(t)
	for path, operations := range pages {
		get, ok := operations["get"]
		if !ok || !strings.HasPrefix(path, "/v1/admin/") || path == operator.EventsPath {
			continue
		}
		query := url.Values{}
		for _, p := range get.Parameters {
			query.Set(p.Name, values[p.Name])
		}
		r := s.request("GET", path+"?"+query.Encode(), "")
		r.Header.Set("Accept", "application/json")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
		at := strings.ReplaceAll(path, "/", "~1")
		schema, err := compiler.Compile("openapi.json#/paths/" + at + "/get/responses/200/content/application~1json/schema")
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got, err := jsonschema.UnmarshalJSON(w.Body)
		if err == nil {
			err = schema.Validate(got)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var detail struct{ Detail string }
	s.ask("GET", "/v1/admin/none", "", 404, &detail)
	_, list, _ := strings.Cut(detail.Detail, "there are ")
	for page := range strings.SplitSeq(list, ", ") {
		method, path, _ := strings.Cut(page, " ")
		if _, ok := pages[path][strings.ToLower(method)]; !ok {
			t.Errorf("the document has no %s", page)
		}
	}
}

// TestFixedLimits of a command line: there is no configuration, and nothing to reload.
func TestFixedLimits(t *testing.T) {
	s := newServer(t, configured)
	fixed, err := live.Fixed(&policy.Set{Policies: []policy.Policy{{
		Name: "default", Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1), 0)}},
	}}}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.serve(fixed)
	var c operator.Configuration
	s.ask("GET", operator.ConfigurationPath, "", 200, &c)
	if c.Text != "" || c.File != "" || len(c.Rules) != 0 {
		t.Errorf("%+v", c)
	}
	s.ask("POST", operator.ReloadPath, "{}", 409, nil)
	if text := s.ask("GET", operator.ReportPath, "", 200, nil).Body.String(); !strings.HasPrefix(text, "policy ") || !strings.HasSuffix(text, "no keys\n") {
		t.Error(text) // there is one policy only, which is meant
	}
}

// TestSecrets from the environment are told by name.
func TestSecrets(t *testing.T) {
	s := newServer(t, strings.Replace(configured, "path: /login", "path: /login, header: {X-Key: '${KEY}'}", 1))
	for _, path := range []string{operator.OverviewPath, operator.RulesPath, operator.ConfigurationPath} {
		if body := s.ask("GET", path, "", 200, nil).Body.String(); strings.Contains(body, "hush-hush") ||
			path != operator.OverviewPath && !strings.Contains(body, "${KEY}") {
			t.Error(body)
		}
	}
}

var errRead = errors.New("the reader is gone")

// failing is a body that breaks off.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errRead }

func TestBodyThatBreaksOff(t *testing.T) {
	s := newServer(t, configured)
	r := s.request("POST", operator.UnlockPath, "{}")
	r.Body, r.ContentLength = io.NopCloser(failing{}), -1
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), errRead.Error()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
