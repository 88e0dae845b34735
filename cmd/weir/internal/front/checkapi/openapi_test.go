package checkapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// document is the OpenAPI document, as far as the test looks at it.
type document struct {
	OpenAPI    string                          `json:"openapi"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]json.RawMessage `json:"schemas"`
		Responses map[string]response        `json:"responses"`
	} `json:"components"`

	compiler *jsonschema.Compiler
	seen     map[string]bool // schemas and responses that were used
}

type operation struct {
	RequestBody *struct {
		Content map[string]struct {
			Schema   reference `json:"schema"`
			Examples map[string]struct {
				Summary string          `json:"summary"`
				Value   json.RawMessage `json:"value"`
			} `json:"examples"`
		} `json:"content"`
	} `json:"requestBody"` //nolint:tagliatelle // that is its name
	Responses map[string]response `json:"responses"`
}

type response struct {
	Reference string                     `json:"$ref"`
	Headers   map[string]json.RawMessage `json:"headers"`
	Content   map[string]struct {
		Schema reference `json:"schema"`
	} `json:"content"`
}

type reference struct {
	Reference string `json:"$ref"`
}

func openDocument(t *testing.T, h http.Handler) *document {
	t.Helper()
	r := send(h, "GET", "/openapi.json", "", "")
	if r.Code != 200 || r.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", r.Code, r.Header())
	}
	d := &document{compiler: jsonschema.NewCompiler(), seen: map[string]bool{}}
	if err := json.Unmarshal(r.Body.Bytes(), d); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	return d
}

// valid compares text with a schema of the document.
func (d *document) valid(schema reference, text []byte) error {
	if schema.Reference == "" {
		return nil
	}
	d.seen[schema.Reference] = true
	compiled, err := d.compiler.Compile("openapi.json" + schema.Reference)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// answered compares an answer with what the document says of it.
func (d *document) answered(method, path string, r *httptest.ResponseRecorder) error {
	o, ok := d.Paths[path][strings.ToLower(method)]
	if !ok {
		return fmt.Errorf("the document has no %s %s", method, path)
	}
	told, ok := o.Responses[fmt.Sprint(r.Code)]
	if !ok {
		return fmt.Errorf("the document does not know %d", r.Code)
	}
	if name, common := strings.CutPrefix(told.Reference, "#/components/responses/"); common {
		d.seen[told.Reference] = true
		told = d.Components.Responses[name]
	}
	kind, _, err := mime.ParseMediaType(r.Header().Get("Content-Type"))
	content, ok := told.Content[kind]
	if !ok || err != nil {
		return fmt.Errorf("%d: the document does not know the type %q", r.Code, kind)
	}
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After", "Allow", "WWW-Authenticate", "Weir-Refusal"} {
		if _, ok := told.Headers[name]; !ok && r.Header().Get(name) != "" {
			return fmt.Errorf("%d: the document does not know the field %s", r.Code, name)
		}
	}
	return d.valid(content.Schema, r.Body.Bytes())
}

// described is the configuration that the examples of the document take for granted.
const described = `version: 1
policies:
  default: {limit: 10/s, burst: 20, key: client.ip}
  tokens: {limit: 10000/min, key: client.ip}
  jobs: {limits: [{algorithm: concurrency, permits: 2}], key: client.ip, queue: {limit: 10, max_wait: 1s}}
  login: {limit: 5/min, key: client.ip}
  search: {limit: 100/min}
rules:
  - {name: login, match: {path: /login}, limits: login}
  - {name: search, match: {path: /search}, limits: search}
  - {name: health, match: {path: /healthz}, exempt: true}
`

// TestOpenAPIExamples sends each example of the document, and compares request and answer with their schemas.
func TestOpenAPIExamples(t *testing.T) {
	h, _ := newConfigured(t, described, policy.EngineOptions{Clock: manualclock.New(0)})
	d := openDocument(t, h)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("OpenAPI %s", d.OpenAPI)
	}
	refused := map[string]bool{"never": true, "refused": true, "each": true}
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, o := range d.Paths[path] {
			if o.RequestBody == nil {
				continue
			}
			body := o.RequestBody.Content["application/json"]
			if len(body.Examples) == 0 {
				t.Errorf("%s has no examples", path)
			}
			for name, example := range body.Examples {
				sent++
				what := path + " " + name
				if err := d.valid(body.Schema, example.Value); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				text := string(example.Value)
				want := http.StatusOK
				switch {
				case path == "/v1/commit", path == "/v1/cancel":
					id := reserved(t, h, `{"policy":"tokens","key":"acme","cost":500}`)
					text = strings.ReplaceAll(text, "XWCSHAMJHQ4OI5QWE2WDFEGNAB", id)
				case path == "/v1/quota/adjust":
					want = http.StatusNotFound // TestOpenAPIStatuses has a quota
				case refused[name]:
					want = http.StatusTooManyRequests
				}
				r := send(h, strings.ToUpper(method), path, "application/json", text)
				if err := d.answered(method, path, r); err != nil || r.Code != want {
					t.Errorf("%s: %d %s: %v", what, r.Code, r.Body, err)
				}
			}
		}
	}
	if sent < 15 {
		t.Errorf("%d examples", sent)
	}
}

// reserved makes a reservation and returns its id.
func reserved(t *testing.T, h http.Handler, body string) string {
	t.Helper()
	r := send(h, "POST", "/v1/reserve", "application/json", body)
	var answer struct{ ID string }
	if err := unmarshal(r.Body.String(), &answer); err != nil || r.Code != 200 || answer.ID == "" {
		t.Fatalf("%s: %d %s: %v", body, r.Code, r.Body, err)
	}
	return answer.ID
}

// quotas are those of one node.
type quotas struct {
	*durable.Node

	broken bool
}

func (q *quotas) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if q.broken && ask.States != nil {
		return store.Hold{}, store.ErrUnavailable
	}
	return q.Node.Do(ctx, ask, charges, decisions)
}

func (q *quotas) Adjust(ctx context.Context, l weir.Limit, a durable.Adjustment) (durable.Adjustment, error) {
	if q.broken {
		return a, store.ErrUnavailable
	}
	return q.Node.Adjust(ctx, l, a)
}

func (q *quotas) Adjustments(ctx context.Context, name, key string, most int) ([]durable.Adjustment, error) {
	if q.broken {
		return nil, store.ErrUnavailable
	}
	return q.Node.Adjustments(ctx, name, key, most)
}

// fronts are servers in all the states in which they answer differently.
type fronts struct {
	usual, draining, closed, full, guarded, remote, limited, fixed, durable, ownerless http.Handler
	path                                                                               string // of the configuration of usual
}

func newFronts(t *testing.T) (f fronts) {
	t.Helper()
	held := func(most int) *holds.Holds {
		h := holds.New(holds.Options{Most: most})
		t.Cleanup(h.Close)
		return h
	}
	load := func(text string, engine policy.EngineOptions) (*live.Limits, string) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := live.Load(live.Options{
			Path: path, Engine: engine, Logger: slog.New(slog.DiscardHandler),
			Parse: func(files live.Files) (live.Parsed, error) {
				f, err := config.Parse(files.File.Name, files.File.Data, config.Options{})
				if err != nil {
					return live.Parsed{}, err
				}
				return live.Parsed{Set: f.Set}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Engine().Close() })
		return l, path
	}
	local := guard(t, adminguard.Options{Local: true})
	usual, path := load(described, policy.EngineOptions{})
	f.path = path
	f.usual = checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: held(100), Admin: local})
	drained := checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: held(100)})
	drained.Drain()
	f.draining = drained
	ended, _ := load(described, policy.EngineOptions{})
	_ = ended.Engine().Close()
	f.closed = checkapi.NewHandler(checkapi.Options{Limits: ended, Holds: held(100)})
	f.guarded = checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: held(1), Admin: guard(t, adminguard.Options{
		Tokens: []adminguard.Token{adminguard.TokenOf("ops", "0123456789abcdef")},
	})})
	f.remote = checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: held(1)})
	nobody, err := adminguard.New(adminguard.Options{Local: true, Rate: weir.PerHour(1), Burst: 1, Clock: manualclock.New(0)})
	if err != nil {
		t.Fatal(err)
	}
	f.limited = checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: held(1), Admin: nobody})
	send(f.limited, "GET", "/v1/status", "", "")
	one := held(1)
	f.full = checkapi.NewHandler(checkapi.Options{Limits: usual, Holds: one})
	reserved(t, f.full, `{"key":"full"}`)
	fixed, _ := newFront(t)
	f.fixed = fixed

	memory, err := durable.NewMemory(durable.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	engine := memory.Engine()
	node, err := durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Close()
		_ = engine.Close()
	})
	tenants, _ := load("version: 1\ncluster: {directory: here}\npolicies:\n"+
		"  tenant: {limit: 1000/h, key: client.ip, durability: cluster}\n"+
		"  local: {limit: 1/s}\n", policy.EngineOptions{Durable: node})
	f.durable = checkapi.NewHandler(checkapi.Options{Limits: tenants, Admin: local, Quotas: &quotas{Node: node}})
	f.ownerless = checkapi.NewHandler(checkapi.Options{Limits: tenants, Admin: local, Quotas: &quotas{Node: node, broken: true}})
	return f
}

// TestOpenAPIStatuses makes the server answer with each status that the document knows, and with no other.
func TestOpenAPIStatuses(t *testing.T) {
	f := newFronts(t)
	d := openDocument(t, f.usual)
	const isJSON = "application/json"
	got := map[string]bool{}
	try := func(h http.Handler, method, path, kind, body string, status int) {
		t.Helper()
		r := send(h, method, path, kind, body)
		bare, _, _ := strings.Cut(path, "?")
		at := method
		if status == http.StatusMethodNotAllowed { // the answer is that of the page
			at = slices.Collect(maps.Keys(d.Paths[bare]))[0]
		}
		if err := d.answered(at, bare, r); err != nil || r.Code != status {
			t.Errorf("%s %s %.60s: %d, want %d: %s: %v", method, path, body, r.Code, status, r.Body, err)
		}
		got[fmt.Sprint(bare, " ", r.Code)] = true
	}

	ask := map[string]string{
		"/v1/check": `{"key":"a"}`, "/v1/decide": `{"path":"/login","client":"192.0.2.3"}`, "/v1/reserve": `{"key":"a"}`,
		"/v1/batch": `{"checks":[{"key":"a"},{"request":{"path":"/login","client":"192.0.2.3"}}]}`,
	}
	for path, body := range ask {
		try(f.usual, "POST", path, isJSON, body, 200)
		try(f.closed, "POST", path, isJSON, body, 503)
	}
	try(f.usual, "POST", "/v1/check", isJSON, `{"key":"a","cost":100}`, 429)
	try(f.usual, "POST", "/v1/decide", isJSON, `{"path":"/login","client":"192.0.2.3","cost":100}`, 429)
	try(f.usual, "POST", "/v1/reserve", isJSON, `{"key":"a","cost":100}`, 429)
	try(f.usual, "POST", "/v1/reserve", isJSON, `{"request":{"path":"/login","client":"192.0.2.3","cost":100}}`, 429)
	try(f.usual, "POST", "/v1/reserve", isJSON, `{"request":{"path":"/login","client":"192.0.2.4"}}`, 200)
	try(f.full, "POST", "/v1/reserve", isJSON, `{"key":"a"}`, 503)
	try(f.usual, "POST", "/v1/batch", isJSON, `{"checks":[{"key":"a","cost":100}]}`, 429)
	try(f.usual, "POST", "/v1/decide", isJSON, `{"path":"/healthz"}`, 200)
	for path, body := range map[string]string{
		"/v1/check": `{"policy":"x","key":"a"}`, "/v1/reserve": `{"policy":"x","key":"a"}`, "/v1/batch": `{"checks":[{"policy":"x","key":"a"}]}`,
		"/v1/commit": `{"id":"x"}`, "/v1/cancel": `{"id":"x"}`,
	} {
		try(f.usual, "POST", path, isJSON, body, 404)
	}
	for path, settlement := range map[string]string{"/v1/commit": `{"id":"%s","cost":3}`, "/v1/cancel": `{"id":"%s"}`} {
		id := reserved(t, f.usual, `{"policy":"tokens","key":"a"}`)
		try(f.usual, "POST", path, isJSON, fmt.Sprintf(settlement, id), 200)
	}
	adjust := `{"policy":"tenant","key":"a","permits":-5,"by":"ops","reason":"test"}`
	try(f.durable, "POST", "/v1/quota/adjust", isJSON, adjust, 200)
	try(f.ownerless, "POST", "/v1/quota/adjust", isJSON, adjust, 503)
	try(f.durable, "POST", "/v1/quota/adjust", isJSON, strings.Replace(adjust, "tenant", "none", 1), 404)
	try(f.durable, "POST", "/v1/quota/adjust", isJSON, strings.Replace(adjust, `"reason":"`, `"reason":"\u001b[2J`, 1), 400)
	try(f.durable, "POST", "/v1/quota/adjust", isJSON, strings.Replace(adjust, "tenant", "local", 1), 422)
	for _, path := range []string{"/v1/quota", "/v1/quota/adjustments"} {
		try(f.durable, "GET", path+"?policy=tenant&key=a", "", "", 200)
		try(f.ownerless, "GET", path+"?policy=tenant&key=a", "", "", 503)
		try(f.durable, "GET", path+"?policy=none", "", "", 404)
		try(f.durable, "GET", path+"?policy=local", "", "", 422)
		try(f.durable, "GET", path+"?policy=local&"+url.QueryEscape("ключ")+"=1", "", "", 400)
	}
	try(f.usual, "POST", "/v1/explain", isJSON, ask["/v1/decide"], 200)
	try(f.usual, "POST", "/v1/explain", isJSON, `{"path":"/healthz"}`, 200)
	try(f.usual, "GET", "/v1/status", "", "", 200)
	try(f.fixed, "GET", "/v1/status", "", "", 200)
	try(f.usual, "POST", "/v1/reload", "", "", 200)
	try(f.fixed, "POST", "/v1/reload", "", "", 409)
	if err := os.WriteFile(f.path, []byte("version: 1\npolicy: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	try(f.usual, "POST", "/v1/reload", "", "", 422)
	try(f.usual, "GET", "/v1/status", "", "", 200)
	for _, path := range []string{"/openapi.json", "/healthz", "/healthcheck", "/readyz", "/"} {
		try(f.usual, "GET", path, "", "", 200)
	}
	try(f.draining, "GET", "/healthz", "", "", 503)
	try(f.draining, "GET", "/readyz", "", "", 503)
	try(f.draining, "GET", "/healthcheck", "", "", 503)

	for path, operations := range d.Paths {
		for method, o := range operations {
			method = strings.ToUpper(method)
			try(f.usual, map[string]string{"GET": "POST", "POST": "GET"}[method], path, isJSON, "{}", 405)
			if _, admin := o.Responses["401"]; admin {
				try(f.guarded, method, path, isJSON, "{}", 401)
				try(f.remote, method, path, isJSON, "{}", 403)
				try(f.limited, method, path, isJSON, "{}", 429)
			}
			if o.RequestBody != nil {
				try(f.usual, method, path, isJSON, `{"nobody":"knows this"}`, 400)
				try(f.usual, method, path, isJSON, `{"checks":[{}],"id":7}`, 400)
				try(f.usual, method, path, isJSON, strings.Repeat(" ", 1<<20+1), 413)
				try(f.usual, method, path, "text/plain", "{}", 415)
				fromElsewhere(t, f.usual, d, path)
				got[path+" 403"] = true
			}
			for status := range o.Responses {
				if !got[path+" "+status] {
					t.Errorf("%s %s never answered %s", method, path, status)
				}
			}
		}
	}
	for kind, names := range map[string][]string{
		"schemas": slices.Collect(maps.Keys(d.Components.Schemas)), "responses": slices.Collect(maps.Keys(d.Components.Responses)),
	} {
		whole := send(f.usual, "GET", "/openapi.json", "", "").Body.String()
		for _, name := range names {
			if !strings.Contains(whole, `"#/components/`+kind+"/"+name+`"`) {
				t.Errorf("nothing has %s of components/%s", name, kind)
			}
		}
	}
	// The page that is told of missing pages tells all.
	var missing struct{ Detail string }
	if err := unmarshal(send(f.usual, "GET", "/none", "", "").Body.String(), &missing); err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(missing.Detail, "there are ")
	var pages []string
	for page := range strings.SplitSeq(list, ", ") {
		method, path, _ := strings.Cut(page, " ")
		if _, ok := d.Paths[path][strings.ToLower(method)]; !ok {
			t.Errorf("the document has no %s", page)
		}
		pages = append(pages, path)
	}
	if len(pages) != len(d.Paths) {
		t.Errorf("%d pages, of which the document has %d", len(pages), len(d.Paths))
	}
}

// fromElsewhere sends what a page of another origin makes a browser send.
func fromElsewhere(t *testing.T, h http.Handler, d *document, path string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("{}"))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := d.answered("POST", path, w); err != nil || w.Code != http.StatusForbidden {
		t.Errorf("%s: %d %s: %v", path, w.Code, w.Body, err)
	}
}
