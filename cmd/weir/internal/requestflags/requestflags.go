// Package requestflags are the flags that describe a request.
package requestflags

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/flagvalue"
	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/cmd/weir/internal/requestline"
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

// Names are the flags that need --request.
func Names() []string { return []string{"header", "client", "route", "protocol", "cost", "attribute"} }

// Register adds the flags to fs.
func (q *Request) Register(fs *pflag.FlagSet) {
	q.headers = pairs{separator: ":", form: "Name: value"}
	q.attributes = pairs{separator: "=", form: "name=value"}
	q.cost, q.protocol = 1, "http"
	fs.Var(&q.request, "request", "explain what becomes of this request: "+requestline.Accepted+"\n(default: none)")
	fs.VarP(&q.headers, "header", "H", "a field of its header, such as 'X-Plan: gold'; may be repeated (default: none)")
	fs.Var(clientFlag{&q.client}, "client", "the address of its client (default: not known)")
	fs.Var(word{&q.route}, "route", "the route, such as 'POST /users/{id}' (default: none)")
	fs.Var(word{&q.protocol}, "protocol", "what it comes by")
	fs.Var(flagvalue.Int(&q.cost, 1, algo.MaxPermits), "cost",
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
	if err := requestline.Parse(q.request.line, r); err != nil {
		return nil, err
	}
	for _, h := range q.headers.all {
		if err := requestline.AddHeader(r, h[0], h[1]); err != nil {
			return nil, misuse.Flag("header", h[0], err.Error())
		}
	}
	if q.client != "" {
		client, err := requestline.ParseClient(q.client)
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
