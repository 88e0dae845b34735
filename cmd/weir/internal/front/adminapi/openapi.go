package adminapi

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// about describes a page to programs.
type about struct {
	summary string
	query   []string // the names of parameters
	policy  bool     // it is about a policy, which may be none
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

type object = map[string]any

// OpenAPI adds the pages, and that of metrics, to a document that describes others.
func OpenAPI(document []byte) ([]byte, error) {
	var whole object
	if err := json.Unmarshal(document, &whole); err != nil {
		return nil, fmt.Errorf("weir: the description of the API: %w", err)
	}
	paths, _ := whole["paths"].(object)
	components, _ := whole["components"].(object)
	all, _ := components["schemas"].(object)
	if paths == nil || all == nil {
		return nil, errors.New("weir: the description of the API has no paths and schemas")
	}
	s := schemas{}
	for i := range pages {
		p := &pages[i]
		method := "get"
		if p.post {
			method = "post"
		}
		paths[p.path] = object{method: p.operation(s)}
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
	maps.Copy(all, s)
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("weir: the description of the API: %w", err)
	}
	return append(text, '\n'), nil
}

var security = []object{{}, {"operator": []string{}}}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// operation describes a page.
func (p *page) operation(s schemas) object {
	a := &p.about
	responses := object{
		"200": object{withText: "The answer.", inContent: p.content(s)},
		"401": reference("responses", "Unauthorized"), "403": reference("responses", "Forbidden"),
		"405": reference("responses", "NoMethod"), "429": reference("responses", "TooMany"),
		"400": reference("responses", "BadRequest"),
	}
	if p.post {
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
	name := strings.TrimPrefix(p.path, prefix)
	o := object{
		"operationId": "admin-" + name, "summary": a.summary, "tags": []string{"operation"}, "security": security,
		"responses": responses,
	}
	parameters := make([]object, 0, len(a.query))
	for _, name := range a.query {
		parameters = append(parameters, object{
			"name": name, "in": "query", withText: parameterTexts[name], asSchema: object{ofType: parameterType(name)},
		})
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if p.post {
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

// content is what a page answers.
func (p *page) content(s schemas) object {
	all := object{}
	if p.about.kind != "" {
		all[p.about.kind] = object{asSchema: object{ofType: textKind}}
	}
	switch {
	case p.about.resultName != "":
		all["application/json"] = object{asSchema: reference("schemas", p.about.resultName)}
	case p.about.result != nil:
		all["application/json"] = object{asSchema: s.of(reflect.TypeOf(p.about.result))}
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
