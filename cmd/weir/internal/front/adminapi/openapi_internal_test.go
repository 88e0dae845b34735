package adminapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// TestGenerated: the document describes the pages as they are. go generate writes it anew.
func TestGenerated(t *testing.T) {
	paths, s := object{}, schemas{}
	for i := range pages {
		p := &pages[i]
		a, known := abouts[p.Path]
		if !known {
			t.Fatalf("nothing is said about %s", p.Path)
		}
		method := "get"
		if p.IsPost() {
			method = "post"
		}
		paths[p.Path] = object{method: p.operation(&a, s)}
	}
	paths[operator.MetricsPath] = object{"get": object{
		"operationId": "metrics", "summary": "Metrics, in the formats of Prometheus.", "tags": []string{"operation"},
		"security": security,
		"responses": object{
			"200": object{withText: "The metrics.", inContent: object{
				"text/plain": object{}, "application/openmetrics-text": object{}, "application/vnd.google.protobuf": object{},
			}},
			"401": reference("responses", "Unauthorized"), "403": reference("responses", "Forbidden"),
			"429": reference("responses", "TooMany"),
		},
	}}
	want, err := json.MarshalIndent(object{"paths": paths, "schemas": s}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err = os.WriteFile("openapi.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("openapi.json")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("openapi.json is not what the pages are (%v): run go generate", err)
	}
}

// about describes a page to programs.
type about struct {
	summary string
	policy  bool // it is about a policy, which may be none
	// body and result are of the types of what is sent and answered. bodyName and resultName are those that the document has
	// already.
	body, result         any
	bodyName, resultName string
	kind                 string // of the result, if it is not JSON alone
	statuses             []int  // besides those of all pages
}

// parameterTexts say what parameters are.
var parameterTexts = map[string]string{
	inPolicy: "The name of a policy.",
	inKey:    `A key. One that is not UTF-8 has \xe9 for the byte e9, and \\ for a backslash.`,
	inWord:   "An address, a network, a key, or a value of requests such as a user, spelled as keys are.",
	"n":      "How many at most.",
	"id":     "The ID of a refusal: 16 hexadecimal digits.",
}

// statusTexts say what statuses mean that have no name in the document.
var statusTexts = map[int]string{
	http.StatusNotFound:            "There is none.",
	http.StatusConflict:            "The limits are those of the command line.",
	http.StatusUnprocessableEntity: "It cannot be done as it was asked.",
	http.StatusServiceUnavailable:  "It cannot be done now: what it needs cannot be reached, or there is no room.",
}

// Members that are everywhere in the document.
const (
	inContent = "content"
	asSchema  = "schema"
	withText  = "description"
	ofType    = "type"
	textKind  = "string"
)

// abouts are what there is to say of the pages.
var abouts = map[string]about{
	operator.OverviewPath: {
		summary: "The state of the server: counts, latency, policies, fronts.", result: operator.Overview{},
	},
	operator.EventsPath: {
		summary: "Server-sent events: overview each second, refusal and audit as they come, end when the server shuts down.",
		kind:    "text/event-stream", statuses: []int{503},
	},
	operator.PoliciesPath: {
		summary: "The policies and their counts.", result: []operator.Policy{},
	},
	operator.RulesPath: {summary: "The rules and their counts.", result: []operator.Rule{}},
	operator.KeysPath: {
		summary: "The keys of a policy under the most pressure.", policy: true,
		result:   []operator.Key{},
		statuses: []int{503},
	},
	operator.KeyPath: {
		summary: "The state of a key of a policy.", policy: true, result: operator.Key{},
		statuses: []int{503},
	},
	operator.SearchPath: {
		summary: "What is known of a word: the address of a client, a network, or a value of requests such as a user.",
		result:  operator.Search{}, statuses: []int{503},
	},
	operator.LockoutsPath: {
		summary: "The keys that are locked out, those for the longest time first.", result: []operator.Lockout{},
	},
	operator.OverridesPath: {
		summary: "The overrides in force.", result: []operator.Override{},
	},
	operator.RefusalsPath: {
		summary: "The last refusals, the last first.", result: operator.Refusals{},
	},
	operator.RefusalPath: {
		summary: "The refusal with the ID that a client has been told.", result: operator.Refusal{},
		statuses: []int{404},
	},
	operator.ReportPath: {
		summary: "The state of one policy for people: as text, or with Accept: application/json.", policy: true,
		kind: "text/plain", result: operator.Report{}, statuses: []int{503},
	},
	operator.ConfigurationPath: {
		summary: "The configuration in force without secrets, its rules, and the last reloads.", result: operator.Configuration{},
	},
	operator.ReplicasPath: {
		summary: "The store, and the cluster.", result: operator.Replicas{},
	},
	operator.MembersPath: {
		summary: "The nodes of the cluster that owns the policies of durability cluster.", result: []operator.Member{},
		statuses: []int{422, 503},
	},
	operator.AuditPath: {
		summary: "The last entries of the audit log, the last first.", result: []operator.AuditEntry{},
	},
	operator.ExplainPath: {
		summary: "How would a request be decided, and why? Takes nothing.", bodyName: "DescribedRequest",
		resultName: "Explanation",
	},
	operator.UnlockPath: {
		summary: "Ends the lockout of a key.",
		policy:  true, body: operator.Change{}, result: operator.Changed{}, statuses: []int{503},
	},
	operator.OverridePath: {
		summary: "Makes another limit apply to a key for a while.",
		policy:  true, body: operator.Override{}, result: operator.Changed{},
		statuses: []int{422, 503},
	},
	operator.RestorePath: {
		summary: "Ends the override of a key.",
		policy:  true, body: operator.Change{}, result: operator.Changed{}, statuses: []int{503},
	},
	operator.ResetPath: {
		summary: "Makes all permits of a key available.", policy: true, body: operator.Change{}, result: operator.Changed{},
		statuses: []int{503},
	},
	operator.MemberRemovePath: {
		summary: "Removes a node from the cluster, for ever.", body: operator.MemberChange{}, result: operator.Changed{},
		statuses: []int{404, 422, 503},
	},
	operator.MemberAddPath: {
		summary: "Adds a node to the cluster, which votes once it has what the others have.", body: operator.MemberChange{},
		result: operator.Changed{}, statuses: []int{422, 503},
	},
	operator.ReloadPath: {
		summary: "Reads the configuration again.",
		body:    operator.Change{}, result: operator.Changed{}, statuses: []int{409, 422, 503},
	},
}

var security = []object{{}, {"operator": []string{}}}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// operation describes a page.
func (p *page) operation(a *about, s schemas) object {
	responses := object{
		"200": object{withText: "The answer.", inContent: a.content(s)},
		"401": reference("responses", "Unauthorized"), "403": reference("responses", "Forbidden"),
		"405": reference("responses", "NoMethod"), "429": reference("responses", "TooMany"),
		"400": reference("responses", "BadRequest"),
	}
	if p.IsPost() {
		responses["413"], responses["415"] = reference("responses", "TooLarge"), reference("responses", "NoJSON")
	}
	if a.policy {
		responses["404"] = reference("responses", "NoPolicy")
	}
	for _, status := range a.statuses {
		r := object{
			withText:  statusTexts[status],
			inContent: object{"application/problem+json": object{asSchema: reference("schemas", "Problem")}},
		}
		if status == http.StatusServiceUnavailable {
			r["headers"] = object{"Retry-After": object{
				withText: "When to come back, in seconds.", asSchema: object{ofType: "integer"},
			}}
		}
		responses[strconv.Itoa(status)] = r
	}
	name := strings.TrimPrefix(p.Path, prefix)
	o := object{
		"operationId": "admin-" + name, "summary": a.summary, "tags": []string{"operation"}, "security": security,
		"responses": responses,
	}
	parameters := make([]object, 0, len(p.query))
	for _, name := range p.query {
		parameters = append(parameters, object{
			"name": name, "in": "query", withText: parameterTexts[name], asSchema: object{ofType: parameterType(name)},
		})
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if p.IsPost() {
		schema := reference("schemas", a.bodyName)
		if a.body != nil {
			schema = s.of(reflect.TypeOf(a.body))
		}
		o["requestBody"] = object{"required": true, inContent: object{"application/json": object{asSchema: schema}}}
	}
	return o
}

func parameterType(name string) string {
	if name == "n" {
		return "integer"
	}
	return textKind
}

// content is what a page replies.
func (a *about) content(s schemas) object {
	all := object{}
	if a.kind != "" {
		all[a.kind] = object{asSchema: object{ofType: textKind}}
	}
	switch {
	case a.resultName != "":
		all["application/json"] = object{asSchema: reference("schemas", a.resultName)}
	case a.result != nil:
		all["application/json"] = object{asSchema: s.of(reflect.TypeOf(a.result))}
	}
	return all
}

// schemas are those of types, by name.
type schemas object

var (
	textType = reflect.TypeFor[encoding.TextMarshaler]()
	timeType = reflect.TypeFor[time.Time]()
)

// of describes a type.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == timeType:
		return object{ofType: textKind, "format": "date-time"}
	case t.Implements(textType):
		return object{ofType: textKind}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Bool:
		return object{ofType: "boolean"}
	case reflect.String:
		return object{ofType: textKind}
	case reflect.Float64:
		return object{ofType: "number"}
	case reflect.Slice:
		return object{ofType: "array", "items": s.of(t.Elem())}
	case reflect.Array:
		return object{ofType: "array", "items": s.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return object{ofType: "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.ofStruct(t)
	case reflect.Interface:
		return object{}
	default:
		return object{ofType: "integer"}
	}
}

func (s schemas) ofStruct(t reflect.Type) object {
	name := "Admin" + t.Name()
	if strings.HasSuffix(t.PkgPath(), "/policy") {
		name = "Engine" + t.Name()
	}
	if _, known := s[name]; !known {
		s[name] = object{} // it may have itself in it
		properties, required := object{}, []string{}
		s.fields(t, properties, &required)
		s[name] = object{ofType: "object", "properties": properties, "required": required}
	}
	return reference("schemas", name)
}

// fields adds the fields of a struct, those of embedded ones included.
func (s schemas) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			s.fields(f.Type, properties, required)
			continue
		case !f.IsExported(), tag == "-":
			continue
		}
		properties[tag] = s.of(f.Type)
		if !strings.Contains(options, "omit") {
			*required = append(*required, tag)
		}
	}
}
