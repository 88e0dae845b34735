package policytest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// begins is when a test begins that does not say so.
var begins = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// mostTimes is how often a step sends its request at most.
	mostTimes = 1_000_000
	// longestWait is how far a step advances the time at most.
	longestWait = 3660 * 24 * time.Hour
)

var (
	// requestKeys describe a request. All requests of a file, of a test and of a step can have them; the last one wins.
	requestKeys = []string{"client", "host", "headers", "attributes", "cost", "route", "protocol"}
	suiteKeys   = append([]string{"config", "at", "env", "tests"}, requestKeys...)
	testKeys    = append([]string{"name", "at", "steps"}, requestKeys...)
	stepKeys    = append([]string{"wait", "release", "request", "times", "every", "hold", "expect"}, requestKeys...)
)

// read reads a file of tests. Its error is a [*config.Errors].
func read(name string, data []byte) (*suite, error) {
	r := &reader{file: name}
	s := &suite{name: name}
	if root := r.parse(data); root != nil {
		r.suite(s, root)
	}
	if len(r.mistakes) == 0 {
		return s, nil
	}
	slices.SortStableFunc(r.mistakes, func(a, b config.Mistake) int {
		return (a.Line-b.Line)<<20 + a.Column - b.Column
	})
	return nil, &config.Errors{File: name, Mistakes: r.mistakes, Omitted: r.omitted}
}

// isConfiguration reports whether the keys at the top are those of a configuration. All of them would be mistakes here.
func isConfiguration(root *yaml.Node) bool {
	found := false
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "policies", "rules":
			found = true
		case "config", "tests":
			return false
		}
	}
	return found
}

func (r *reader) suite(s *suite, root *yaml.Node) {
	if isConfiguration(root) {
		r.wrong(root, "", "this is a configuration, and not a file of unit tests",
			"run: weir config check "+r.file+", or give a file with config: "+filepath.Base(r.file)+" and tests:")
		return
	}
	fields, ok := r.fields(root, "", "the file", suiteKeys)
	if !ok {
		return
	}
	at := begins
	defaults := &policy.Request{Protocol: "http"}
	var tests *field
	for i, f := range fields {
		switch f.key.Value {
		case "config":
			if text, ok := r.text(f, "the name of a configuration, such as weir.yaml"); ok {
				s.config = text
				s.place = config.Mistake{File: s.name, Line: f.value.Line, Column: f.value.Column, Path: f.path}
				if !filepath.IsAbs(text) {
					s.config = filepath.Join(filepath.Dir(s.name), text)
				}
			}
		case "at":
			at = r.time(f)
		case "env":
			s.env = r.pairs(f, "variables of the environment with their values")
		case "tests":
			tests = &fields[i]
		default:
			r.describe(f, defaults)
		}
	}
	if !has(fields, "config") {
		r.wrong(root, "config", "is missing: a file of tests names the configuration that it tests", "add config: weir.yaml")
	}
	if tests == nil {
		r.wrong(root, "tests", "is missing: a file of tests has a list of them", "add tests: with a list below it")
		return
	}
	for i, n := range r.items(*tests, "tests, each with a name and steps") {
		s.tests = append(s.tests, r.test(n, fmt.Sprintf("tests[%d]", i), at, defaults))
		last := &s.tests[len(s.tests)-1]
		for _, other := range s.tests[:i] {
			if other.name == last.name && last.name != "" {
				message := fmt.Sprintf("%q is the name of the test in line %d as well", short(last.name), other.place.line)
				r.wrong(n, fmt.Sprintf("tests[%d].name", i), message, "give each test a name of its own")
				break
			}
		}
	}
}

func has(fields []field, key string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.key.Value == key })
}

func (r *reader) test(n *yaml.Node, path string, at time.Time, defaults *policy.Request) test {
	t := test{at: at, place: place{n.Line, n.Column}}
	fields, ok := r.fields(n, path, "a test", testKeys)
	if !ok {
		return t
	}
	request := clone(defaults)
	var steps *field
	for i, f := range fields {
		switch f.key.Value {
		case "name":
			t.name, _ = r.text(f, "the name of the test")
		case "at":
			t.at = r.time(f)
		case "steps":
			steps = &fields[i]
		default:
			r.describe(f, request)
		}
	}
	if !has(fields, "name") {
		r.wrong(n, path+".name", "is missing: a test has a name", "add name: with what is tested")
	}
	if steps == nil {
		r.wrong(n, path+".steps", "is missing: a test has a list of steps", "add steps: with a list below it")
		return t
	}
	for i, n := range r.items(*steps, "steps") {
		t.steps = append(t.steps, r.step(n, fmt.Sprintf("%s.steps[%d]", path, i), request))
	}
	return t
}

func (r *reader) step(n *yaml.Node, path string, defaults *policy.Request) step {
	s := step{place: place{n.Line, n.Column}, times: 1}
	fields, ok := r.fields(n, path, "a step", stepKeys)
	if !ok {
		return s
	}
	request := clone(defaults)
	var expect *field
	for i, f := range fields {
		switch f.key.Value {
		case "wait":
			s.wait = r.duration(f)
		case "release":
			s.release = r.boolean(f)
		case "request":
			s.request = request
			if line, ok := r.text(f, flags.RequestForm); ok {
				if err := flags.ParseRequest(line, request); err != nil {
					r.wrong(f.value, f.path, err.Error(), `write GET /, for instance`)
				}
			}
		case "times":
			if n, ok := r.number(f, 1, mostTimes); ok {
				s.times = n
			}
		case "every":
			s.every = r.duration(f)
		case "hold":
			s.hold = r.boolean(f)
		case "expect":
			expect = &fields[i]
		default:
			r.describe(f, request)
		}
	}
	if s.request == nil && !r.withoutRequest(n, path, fields) {
		return s
	}
	if s.every > 0 && s.times == 1 {
		r.wrong(n, path, "has every, but sends one request only", "add times: 5, for instance")
	}
	if expect != nil {
		s.expect = r.expectations(*expect, &s)
	}
	return s
}

// withoutRequest checks a step that sends nothing: then there must be nothing about a request either.
func (r *reader) withoutRequest(n *yaml.Node, path string, fields []field) bool {
	for _, f := range fields {
		if !slices.Contains([]string{"wait", "release"}, f.key.Value) {
			r.wrong(f.key, path, "has no request, for which this could hold", "add request: GET /, for instance")
			return false
		}
	}
	if len(fields) == 0 {
		r.wrong(n, path, "does nothing", "add a wait or a request")
	}
	return true
}

// clone copies what a step may change.
func clone(r *policy.Request) *policy.Request {
	copied := *r
	if h, ok := r.Header.(headers); ok {
		copied.Header = maps.Clone(h)
	}
	copied.Attributes = maps.Clone(r.Attributes)
	return &copied
}

// headers are those of a request, each with one value. Names are in canonical form.
type headers map[string][]string

// Values returns the values of a field: see [policy.Request].Header.
func (h headers) Values(name string) []string { return h[name] }

// describe reads a part of a request.
func (r *reader) describe(f field, request *policy.Request) {
	switch f.key.Value {
	case "client":
		text, ok := r.text(f, "the address of the client, such as 192.0.2.1")
		if !ok {
			return
		}
		client, err := flags.ParseClient(text)
		if err != nil {
			r.wrong(f.value, f.path, "must be the address of the client", "write 192.0.2.1, for instance")
		}
		request.Client = client
	case "host":
		request.Host, _ = r.text(f, "the host that is asked")
	case "headers":
		r.headers(f, request)
	case "attributes":
		all := maps.Clone(request.Attributes)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, r.pairs(f, "attributes with their values"))
		request.Attributes = all
	case "cost":
		request.Cost, _ = r.number(f, 1, algo.MaxPermits)
	case "route":
		request.Route, _ = r.text(f, "the name of the route")
	case "protocol":
		request.Protocol, _ = r.text(f, "http or grpc")
		request.Protocol = strings.ToLower(request.Protocol)
	}
}

// headers reads the fields of a header. They are added to those of the file and of the test.
func (r *reader) headers(f field, request *policy.Request) {
	all := headers{}
	if h, ok := request.Header.(headers); ok {
		maps.Copy(all, h)
	}
	fields, ok := r.fields(f.value, f.path, "fields of the header with their values", nil)
	if !ok {
		return
	}
	for _, pair := range fields {
		if pair.value.Kind != yaml.ScalarNode {
			r.wrong(pair.value, pair.path, kind(pair.value)+": must be text",
				`write a value, "" for an empty one, null for no such field`)
			continue
		}
		var one policy.Request
		if err := flags.AddHeader(&one, pair.key.Value, pair.value.Value); err != nil {
			r.wrong(pair.key, f.path, "is not the name of a header field", "write X-Plan, for instance")
			continue
		}
		if one.Header == nil {
			request.Host = one.Host
			continue
		}
		name := canonical(pair.key.Value)
		if isNull(pair.value) {
			delete(all, name)
		} else {
			all[name] = []string{pair.value.Value}
		}
	}
	request.Header = all
}
