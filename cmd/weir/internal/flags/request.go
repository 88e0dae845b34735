package flags

import (
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
)

// Request is a request as flags describe it.
type Request struct {
	line       string
	headers    [][2]string
	client     string
	route      string
	protocol   string
	cost       int64
	attributes [][2]string
}

// RequestNames are the flags that need --request.
func RequestNames() []string {
	return []string{"header", clientName, "route", "protocol", "cost", "attribute"}
}

// Register adds the flags to fs.
func (q *Request) Register(fs *pflag.FlagSet) {
	q.cost, q.protocol = 1, "http"
	fs.Var(requestFlag(&q.line), "request", "explain what becomes of this request: "+RequestForm+"\n(default: none)")
	fs.VarP(pairs(&q.headers, ":", "Name: value"), "header", "H",
		"a field of its header, such as 'X-Plan: gold'; may be repeated (default: none)")
	fs.Var(clientFlag(&q.client), clientName, "the address of its client (default: not known)")
	fs.Var(AnyText(&q.route), "route", "the route, such as 'POST /users/{id}' (default: none)")
	fs.Var(AnyText(&q.protocol), "protocol", "what it comes by")
	fs.Var(Int(&q.cost, 1, algo.MaxPermits), "cost",
		"how many permits it costs where the configuration does not say so, from 1 to 10^15")
	fs.Var(pairs(&q.attributes, "=", "name=value"), "attribute",
		"an attribute, such as team=blue; may be repeated (default: none)")
}

// Line is the value of --request, "" if there is none.
func (q *Request) Line() string { return q.line }

// Client is the value of --client, "" if there is none.
func (q *Request) Client() string { return q.client }

// Describe returns the request.
func (q *Request) Describe() (*policy.Request, error) {
	r := &policy.Request{Protocol: strings.ToLower(q.protocol), Route: q.route, Cost: q.cost}
	if err := ParseRequest(q.line, r); err != nil {
		return nil, err
	}
	for _, h := range q.headers {
		if err := AddHeader(r, h[0], h[1]); err != nil {
			return nil, BadValue("header", h[0], err.Error())
		}
		if !httpguts.ValidHeaderFieldValue(h[1]) {
			return nil, BadValue("header", h[0]+": "+h[1], "the value must have no control characters: no request has them")
		}
	}
	if q.client != "" {
		client, err := ParseClient(q.client)
		if err != nil {
			return nil, err
		}
		r.Client = client
	}
	for _, a := range q.attributes {
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		r.Attributes[a[0]] = a[1]
	}
	return r, nil
}

// requestFlag is a flag value that stores a request into p.
func requestFlag(p *string) *Value {
	return TextOf("request", p, func(s string) (string, error) { return s, ParseRequest(s, &policy.Request{}) })
}

// clientFlag is a flag value that stores an address into p.
func clientFlag(p *string) *Value {
	return TextOf("address", p, func(s string) (string, error) {
		_, err := ParseClient(s)
		return s, err
	})
}

// AnyText is a flag value that stores any text into p.
func AnyText(p *string) *Value {
	return TextOf("text", p, func(s string) (string, error) { return s, nil })
}

// pairs is a flag value that may be repeated, and adds names with values to p.
func pairs(p *[][2]string, separator, form string) *Value {
	text := func(all [][2]string) string {
		words := make([]string, len(all))
		for i, p := range all {
			words[i] = p[0] + separator + p[1]
		}
		return strings.Join(words, ", ")
	}
	return Of("'"+form+"'", p, text, func(s string) ([][2]string, error) {
		name, value, found := strings.Cut(s, separator)
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, Errorf("must be '%s'", form)
		}
		return append(*p, [2]string{name, strings.TrimSpace(value)}), nil
	})
}
