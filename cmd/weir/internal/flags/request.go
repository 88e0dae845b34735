package flags

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
)

// Request is a request as flags describe it.
type Request struct {
	request    requestFlag
	headers    pairs
	client     string
	route      string
	protocol   string
	cost       int64
	attributes pairs
}

// RequestNames are the flags that need --request.
func RequestNames() []string {
	return []string{"header", clientName, "route", "protocol", "cost", "attribute"}
}

// Register adds the flags to fs.
func (q *Request) Register(fs *pflag.FlagSet) {
	q.headers = pairs{separator: ":", form: "Name: value"}
	q.attributes = pairs{separator: "=", form: "name=value"}
	q.cost, q.protocol = 1, "http"
	fs.Var(&q.request, "request", "explain what becomes of this request: "+RequestForm+"\n(default: none)")
	fs.VarP(&q.headers, "header", "H", "a field of its header, such as 'X-Plan: gold'; may be repeated (default: none)")
	fs.Var(clientFlag{&q.client}, clientName, "the address of its client (default: not known)")
	fs.Var(word{&q.route}, "route", "the route, such as 'POST /users/{id}' (default: none)")
	fs.Var(word{&q.protocol}, "protocol", "what it comes by")
	fs.Var(Int(&q.cost, 1, algo.MaxPermits), "cost",
		"how many permits it costs where the configuration does not say so, from 1 to 10^15")
	fs.Var(&q.attributes, "attribute", "an attribute, such as team=blue; may be repeated (default: none)")
}

// Line is the value of --request, "" if there is none.
func (q *Request) Line() string { return q.request.line }

// Client is the value of --client, "" if there is none.
func (q *Request) Client() string { return q.client }

// Describe returns the request.
func (q *Request) Describe() (*policy.Request, error) {
	r := &policy.Request{Protocol: strings.ToLower(q.protocol), Route: q.route, Cost: q.cost}
	if err := ParseRequest(q.request.line, r); err != nil {
		return nil, err
	}
	for _, h := range q.headers.all {
		if err := AddHeader(r, h[0], h[1]); err != nil {
			return nil, BadValue("header", h[0], err.Error())
		}
	}
	if q.client != "" {
		client, err := ParseClient(q.client)
		if err != nil {
			return nil, err
		}
		r.Client = client
	}
	for _, a := range q.attributes.all {
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		r.Attributes[a[0]] = a[1]
	}
	return r, nil
}

// requestFlag is a flag value: a request.
type requestFlag struct{ line string }

func (f *requestFlag) String() string { return f.line }

// Set takes a line that can be read.
func (f *requestFlag) Set(s string) error {
	if err := ParseRequest(s, &policy.Request{}); err != nil {
		return err
	}
	f.line = s
	return nil
}

// Type is what help shows in place of a value.
func (*requestFlag) Type() string { return "request" }

// clientFlag is a flag value: an address.
type clientFlag struct{ address *string }

func (f clientFlag) String() string {
	if f.address == nil {
		return ""
	}
	return *f.address
}

// Set takes an address.
func (f clientFlag) Set(s string) error {
	_, err := ParseClient(s)
	*f.address = s
	return err
}

// Type is what help shows in place of a value.
func (clientFlag) Type() string { return "address" }

// word is a flag value: any text.
type word struct{ text *string }

func (f word) String() string {
	if f.text == nil {
		return ""
	}
	return *f.text
}

// Set takes any text.
func (f word) Set(s string) error {
	*f.text = s
	return nil
}

// Type is what help shows in place of a value.
func (word) Type() string { return "text" }

// pairs is a flag value that may be repeated: names with values.
type pairs struct {
	separator, form string
	all             [][2]string
}

func (f *pairs) String() string {
	if f == nil || len(f.all) == 0 {
		return ""
	}
	words := make([]string, len(f.all))
	for i, p := range f.all {
		words[i] = p[0] + f.separator + p[1]
	}
	return strings.Join(words, ", ")
}

// Set adds a pair.
func (f *pairs) Set(s string) error {
	name, value, found := strings.Cut(s, f.separator)
	if name = strings.TrimSpace(name); !found || name == "" {
		return Errorf("must be '%s'", f.form)
	}
	f.all = append(f.all, [2]string{name, strings.TrimSpace(value)})
	return nil
}

// Type is what help shows in place of a value.
func (f *pairs) Type() string { return "'" + f.form + "'" }
