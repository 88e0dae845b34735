package offline

import (
	"fmt"
	"maps"
	"math"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config/yamlread"
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

// requestKeys describe a request. All requests of a file, of a test and of a step can have them; the last one wins.
var requestKeys = []yamlread.Key[*reader, *policy.Request]{
	{Name: "client", Read: func(r *reader, v yamlread.Value, to *policy.Request) {
		text := r.text(v, "the address of the client, such as 192.0.2.1")
		client, err := flags.ParseClient(text)
		if err != nil && text != "" {
			r.Wrong(v, "must be the address of the client", "write 192.0.2.1, for instance")
		}
		to.Client = client
	}},
	{Name: "host", Read: func(r *reader, v yamlread.Value, to *policy.Request) { to.Host = r.text(v, "the host that is asked") }},
	{Name: "headers", Read: (*reader).headers},
	{Name: "attributes", Read: func(r *reader, v yamlread.Value, to *policy.Request) {
		all := maps.Clone(to.Attributes)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, r.pairs(v, "attributes with their values"))
		to.Attributes = all
	}},
	{Name: "cost", Read: func(r *reader, v yamlread.Value, to *policy.Request) { to.Cost, _ = r.number(v, 1, algo.MaxPermits) }},
	{Name: "route", Read: func(r *reader, v yamlread.Value, to *policy.Request) {
		to.Route = r.text(v,
			"the name of the route")
	}},
	{Name: "protocol", Read: func(r *reader, v yamlread.Value, to *policy.Request) {
		to.Protocol = strings.ToLower(r.text(v, "http or grpc"))
	}},
}

var suiteTable = yamlread.NewTable(yamlread.Kind{What: "the file"}, append([]yamlread.Key[*reader, *suite]{
	{Name: "config", Read: func(r *reader, v yamlread.Value, to *suite) {
		to.config, to.place = r.text(v, "the name of a configuration, such as weir.yaml"), v
		if !filepath.IsAbs(to.config) {
			to.config = filepath.Join(filepath.Dir(to.name), to.config)
		}
	}},
	{Name: "at", Read: func(r *reader, v yamlread.Value, to *suite) { to.at = r.time(v) }},
	{Name: "env", Read: func(r *reader, v yamlread.Value, to *suite) {
		to.env = r.pairs(v, "variables of the environment with their values")
	}},
	{Name: "tests"},
}, yamlread.Within(requestKeys, func(s *suite) *policy.Request { return s.request })...)...)

var testTable = yamlread.NewTable(yamlread.Kind{What: "a test"}, append([]yamlread.Key[*reader, *test]{
	{Name: "name", Read: func(r *reader, v yamlread.Value, to *test) { to.name = r.text(v, "the name of the test") }},
	{Name: "at", Read: func(r *reader, v yamlread.Value, to *test) { to.at = r.time(v) }},
	{Name: "steps"},
}, yamlread.Within(requestKeys, func(t *test) *policy.Request { return t.request })...)...)

var stepTable = yamlread.NewTable(yamlread.Kind{What: "a step"}, append([]yamlread.Key[*reader, *step]{
	{Name: "wait", Read: func(r *reader, v yamlread.Value, to *step) { to.wait = r.duration(v) }},
	{Name: "release", Read: func(r *reader, v yamlread.Value, to *step) { to.release = r.Boolean(v) }},
	{Name: "request", Read: func(r *reader, v yamlread.Value, to *step) {
		to.sends = true
		if line := r.text(v, flags.RequestForm); line != "" {
			if err := flags.ParseRequest(line, to.request); err != nil {
				r.Wrong(v, err.Error(), `write GET /, for instance`)
			}
		}
	}},
	{Name: "times", Read: func(r *reader, v yamlread.Value, to *step) {
		if n, ok := r.number(v, 1, mostTimes); ok {
			to.times = n
		}
	}},
	{Name: "every", Read: func(r *reader, v yamlread.Value, to *step) { to.every = r.duration(v) }},
	{Name: "hold", Read: func(r *reader, v yamlread.Value, to *step) { to.hold = r.Boolean(v) }},
	{Name: "expect"},
}, yamlread.Within(requestKeys, func(s *step) *policy.Request { return s.request })...)...)

// reader turns the nodes of a file into tests. It goes on after a mistake.
type reader struct{ *yamlread.Reader }

// mostAliased is how many nodes may be looked at again, as aliases lead to them.
const mostAliased = 1_000_000

// words are how a file of tests says what is wrong with its YAML.
var words = yamlread.Words{
	Found:    true,
	Single:   "is a single value",
	Mapping:  "write key: value below it",
	Unknown:  yamlread.OfKey{Message: "unknown key: {what} has no such key", Value: true},
	Twice:    yamlread.OfKey{Message: "stands here twice: first in line {first}", Path: true, Value: true},
	Merge:    "<< must be a mapping, or a list of mappings, that are merged into this one",
	MergeFix: "write <<: *name of an anchor &name",
	Empty:    "is an empty list", EmptyFix: itemFix,
	Second: "remove the line ---",
}

// read reads a file of tests. Its error is a [*yamlread.Errors].
func read(name string, data []byte) (*suite, error) {
	r := &reader{yamlread.New(name, data, yamlread.Options{Words: words, Aliased: mostAliased})}
	s := &suite{file: r.Reader, name: name, at: begins, request: &policy.Request{Protocol: "http"}}
	switch root, ok := r.Root(); {
	case ok:
		r.suite(s, root)
	case r.Mistakes.Count() == 0:
		r.WrongAt(1, 1, "the file is empty", "begin with config: and the name of the configuration")
	}
	if r.Exhausted() {
		r.Only(fmt.Sprintf("aliases lead to more than %d values", mostAliased), "use fewer aliases")
	}
	if errs := r.Errors(); errs != nil {
		return nil, errs
	}
	return s, nil
}

// isConfiguration reports whether the keys at the top are those of a configuration. All of them would be mistakes here.
func isConfiguration(root yamlread.Value) bool {
	found := false
	for i := 0; root.IsMapping() && i+1 < len(root.Node.Content); i += 2 {
		switch root.Node.Content[i].Value {
		case "policies", "rules":
			found = true
		case "config", "tests":
			return false
		}
	}
	return found
}

func (r *reader) suite(s *suite, root yamlread.Value) {
	if isConfiguration(root) {
		r.Wrong(root, "this is a configuration, and not a file of unit tests",
			"run: weir config check "+s.name+", or give a file with config: "+filepath.Base(s.name)+" and tests:")
		return
	}
	o, ok := r.Object(root, suiteTable.Kind)
	if !ok {
		return
	}
	suiteTable.Fill(r, o, s)
	if s.place.Node == nil {
		o.Missing("config", "is missing: a file of tests names the configuration that it tests", "add config: weir.yaml")
	}
	tests, given := o.Get("tests")
	if !given {
		o.Missing("tests", "is missing: a file of tests has a list of them", "add tests: with a list below it")
		return
	}
	lines := map[string]int{}
	for _, v := range r.items(tests, "tests, each with a name and steps") {
		t := r.test(v, s)
		if line, twice := lines[t.name]; twice && t.name != "" {
			r.Wrong(yamlread.Value{Node: v.Node, Path: v.Path + ".name"},
				fmt.Sprintf("%q is the name of the test in line %d as well", yamlread.Shorten(t.name), line),
				"give each test a name of its own")
		} else {
			lines[t.name] = v.Node.Line
		}
		s.tests = append(s.tests, t)
	}
}

func (r *reader) test(v yamlread.Value, s *suite) test {
	t := test{at: s.at, place: v, request: clone(s.request)}
	o, ok := r.Object(v, testTable.Kind)
	if !ok {
		return t
	}
	testTable.Fill(r, o, &t)
	if _, given := o.Get("name"); !given {
		o.Missing("name", "is missing: a test has a name", "add name: with what is tested")
	}
	steps, given := o.Get("steps")
	if !given {
		o.Missing("steps", "is missing: a test has a list of steps", "add steps: with a list below it")
		return t
	}
	remaining := math.MaxInt64 - max(0, t.at.UnixNano())
	for _, item := range r.items(steps, "steps") {
		one := r.step(item, t.request)
		if remaining = one.after(remaining); remaining < 0 {
			r.Wrong(item, "goes on after 2262-04-11T23:47:16Z, when the time of tests ends", "wait for less")
			return t
		}
		t.steps = append(t.steps, one)
	}
	return t
}

// after returns how many nanoseconds remain of some after a step, less than none if it takes longer.
func (s *step) after(remaining int64) int64 {
	remaining -= int64(s.wait)
	between := s.times - 1
	if between > 0 && int64(s.every) > remaining/between {
		return -1
	}
	return remaining - int64(s.every)*between
}

func (r *reader) step(v yamlread.Value, request *policy.Request) step {
	s := step{times: 1, request: clone(request)}
	o, ok := r.Object(v, stepTable.Kind)
	if !ok {
		return s
	}
	stepTable.Fill(r, o, &s)
	if !s.sends && !r.withoutRequest(o) {
		return s
	}
	if s.every > 0 && s.times == 1 {
		r.Wrong(v, "has every, but sends one request only", "add times: 5, for instance")
	}
	if expect, given := o.Get("expect"); given {
		s.expect = r.expectations(expect, &s)
	}
	return s
}

// withoutRequest checks a step that sends nothing: then there must be nothing about a request either.
func (r *reader) withoutRequest(o *yamlread.Object) bool {
	for _, key := range o.Keys {
		if key != "wait" && key != "release" {
			r.Wrong(o.Fields[key].OfKey(), "has no request, for which this could hold", "add request: GET /, for instance")
			return false
		}
	}
	if len(o.Keys) == 0 {
		r.Wrong(o.Value, "does nothing", "add a wait or a request")
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

// headers reads the fields of a header. They are added to those of the file and of the test.
func (r *reader) headers(v yamlread.Value, to *policy.Request) {
	all := headers{}
	if h, ok := to.Header.(headers); ok {
		maps.Copy(all, h)
	}
	o, ok := r.Mapping(v, "fields of the header with their values", "")
	if !ok {
		return
	}
	for _, name := range o.Keys {
		field := o.Fields[name]
		value := ""
		if !field.IsNull() {
			s, ok := r.Scalar(field, "text", `write a value, "" for an empty one, null for no such field`)
			if !ok {
				continue
			}
			value = s.Text
		}
		var one policy.Request
		if err := flags.AddHeader(&one, name, value); err != nil {
			r.Wrong(field.OfKey(), "is not the name of a header field", "write X-Plan, for instance")
			continue
		}
		if one.Header == nil {
			to.Host = one.Host
			continue
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); field.IsNull() {
			delete(all, name)
		} else {
			all[name] = []string{value}
		}
	}
	to.Header = all
}

const itemFix = "begin each item with - in a line of its own"

// items reads a list.
func (r *reader) items(v yamlread.Value, what string) []yamlread.Value {
	items, _ := r.List(v.Itself(), "a list of "+what, itemFix)
	return items
}

// text reads a text that is not empty. A number is taken as it is written.
func (r *reader) text(v yamlread.Value, must string) string {
	s, ok := r.Scalar(v, must, "write "+must)
	if ok && s.Text == "" {
		r.Wrong(v, "is empty: must be "+must, "write "+must)
	}
	return s.Text
}

// pairs reads a mapping from texts to texts. A number is taken as it is written.
func (r *reader) pairs(v yamlread.Value, what string) map[string]string {
	o, ok := r.Mapping(v, what, "")
	if !ok {
		return nil
	}
	pairs := make(map[string]string, len(o.Keys))
	for _, key := range o.Keys {
		if s, ok := r.Scalar(o.Fields[key], "text", `write a value, "" for an empty one`); ok {
			pairs[key] = s.Text
		}
	}
	return pairs
}

// time reads when a test begins.
func (r *reader) time(v yamlread.Value) time.Time {
	const must, fix = "a time with its zone, from 1970 to 2099", "write 2026-01-01T00:00:00Z, for instance"
	s, ok := r.Scalar(v, must, fix)
	if !ok {
		return begins
	}
	t, err := time.Parse(time.RFC3339Nano, s.Text)
	if err != nil || t.Year() < 1970 || t.Year() >= 2100 {
		r.Wrong(v, "must be "+must, fix)
		return begins
	}
	return t
}

// duration reads how long to wait.
func (r *reader) duration(v yamlread.Value) time.Duration {
	const must, fix = "a duration such as 500ms, 90s, 1h30m or 30d, up to 3660d", "write 30s, for instance"
	s, ok := r.Scalar(v, must, fix)
	if !ok {
		return 0
	}
	d, ok := yamlread.ParseDuration(s.Text)
	if !ok || d > longestWait {
		r.Wrong(v, "must be "+must, fix)
		return 0
	}
	return d
}

// number reads a whole number.
func (r *reader) number(v yamlread.Value, lowest, highest int64) (int64, bool) {
	return r.Number(v, lowest, highest, "a whole number")
}

// listed is "a, b", or "none".
func listed(words []string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}

// check returns mistakes for policies and rules that tests expect and the configuration does not have, and for tests that expect
// nothing: the first could never pass, the others never fail.
func (s *suite) check(set *policy.Set) error {
	policies, ruleNames := make([]string, 0, len(set.Policies)), make([]string, 0, len(set.Rules))
	for i := range set.Policies {
		policies = append(policies, set.Policies[i].Name)
	}
	for i := range set.Rules {
		ruleNames = append(ruleNames, set.Rules[i].Name)
	}
	check := func(e *expectation, what, name string, known []string) {
		if slices.Contains(known, name) {
			return
		}
		fix := "it has none"
		if len(known) > 0 {
			fix = "it has " + strings.Join(known[:min(len(known), 10)], ", ")
		}
		s.file.WrongAs(e.place.Itself(), name, "the configuration has no such "+what, yamlread.Meant(name, known, fix))
	}
	for _, t := range s.tests {
		if !slices.ContainsFunc(t.steps, func(one step) bool { return len(one.expect) > 0 }) {
			s.file.Wrong(t.place, "expects nothing of any request", "add expect: {allowed: true} to a step, for instance")
		}
		for _, one := range t.steps {
			for i := range one.expect {
				e := &one.expect[i]
				for _, name := range e.policies {
					check(e, "policy", name, policies)
				}
				for _, name := range e.rules {
					check(e, "rule", name, ruleNames)
				}
			}
		}
	}
	if errs := s.file.Errors(); errs != nil {
		return errs
	}
	return nil
}
