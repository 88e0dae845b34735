package checkapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/policy"
)

const (
	acceptedText       = "must be a string"
	acceptedHeaders    = "must be an object of strings, or of arrays of strings"
	acceptedAttributes = "must be an object of strings"
	acceptedClient     = "must be an address such as 192.0.2.1 or 2001:db8::1"
	acceptedPath       = "must be the target of a request: " + flags.TargetForm
	acceptedQuery      = "must be left out where path has a query"
	acceptedHost       = "must be that of the URL in path, or be left out"
	acceptedMethod     = "must be the method of a request, such as GET, or be left out"
	acceptedName       = "must be the host of a request, such as api.example.com or api.example.com:443"
	acceptedRequest    = "must be an object that describes a request as that of /v1/decide does"

	methodName, hostName                    = "method", "host"
	pathName, queryName                     = "path", "query"
	clientName, headersName, attributesName = "client", "headers", "attributes"
)

// described is a request that a body describes. The zero value describes none.
type described struct {
	policy.Request

	target flags.Target
	probe  bool // the cost is 0: nothing is taken, and Cost is what it would be without one
	wait   time.Duration
}

// describedDialect is the object that describes a request. Everything may be missing.
var describedDialect = dialect[described]{
	"must be protocol, method, host, path, query, route, headers, client, attributes, cost or wait",
	[]field[described]{
		member("protocol", wordOf("protocol"), func(d *described) *string { return &d.Protocol }),
		member(methodName, wordOf(methodName), func(d *described) *string { return &d.Method }),
		member(hostName, wordOf(hostName), func(d *described) *string { return &d.Host }),
		{pathName, func(s *scanner, d *described) error { return d.path(s) }},
		member(queryName, wordOf(queryName), func(d *described) *string { return &d.Query }),
		member("route", wordOf("route"), func(d *described) *string { return &d.Route }),
		{headersName, func(s *scanner, d *described) error { return d.headers(s) }},
		{clientName, func(s *scanner, d *described) error { return d.client(s) }},
		{attributesName, func(s *scanner, d *described) error { return d.attributes(s) }},
		{costName, func(s *scanner, d *described) (err error) {
			d.Cost, err = s.cost()
			d.probe = d.Cost == 0
			return err
		}},
		member(waitName, (*scanner).wait, func(d *described) *time.Duration { return &d.wait }),
	},
	describes,
}

// describes checks a described request, and puts its parts together.
func describes(of *dialect[described], d *described, given uint) error {
	switch {
	case d.probe && d.wait > 0:
		return &fault{field: waitName, accepted: acceptedProbe}
	case d.target.HasQuery && of.has(given, queryName):
		return &fault{field: queryName, value: excerpt([]byte(d.Query)), accepted: acceptedQuery}
	case d.target.Host != "" && of.has(given, hostName) && !strings.EqualFold(d.Host, d.target.Host):
		return &fault{field: hostName, value: excerpt([]byte(d.Host)), accepted: acceptedHost}
	}
	if d.Protocol == "" {
		d.Protocol = "http"
	}
	if query := d.Query; of.has(given, pathName) {
		if d.target.Set(&d.Request); !d.target.HasQuery {
			d.Query = query
		}
	}
	if d.target.Host != "" {
		d.Host = d.target.Host
	}
	if d.Method != "" && !flags.IsMethod(d.Method) {
		return &fault{field: methodName, value: excerpt([]byte(d.Method)), accepted: acceptedMethod}
	}
	if !flags.IsHost(d.Host) {
		return &fault{field: hostName, value: excerpt([]byte(d.Host)), accepted: acceptedName}
	}
	return nil
}

// described reads the object of a field that describes a request.
func (s *scanner) described() (*described, error) {
	if s.next() != '{' {
		return nil, &fault{field: requestName, value: s.excerpt(), accepted: acceptedRequest}
	}
	d := new(described)
	return d, within(requestName, describedDialect.read(s, d))
}

// path reads the target of the request.
func (d *described) path(s *scanner) error {
	text, err := s.textField(pathName)
	if err != nil {
		return err
	}
	var ok bool
	if d.target, ok = flags.ParseTarget(text); !ok {
		return &fault{field: pathName, value: excerpt([]byte(text)), accepted: acceptedPath}
	}
	return nil
}

// client reads the address of the client.
func (d *described) client(s *scanner) error {
	text, err := s.textField(clientName)
	if err != nil {
		return err
	}
	addr, ok := clientip.Parse(text)
	if !ok {
		return &fault{field: clientName, value: excerpt([]byte(text)), accepted: acceptedClient}
	}
	d.Client = addr
	return nil
}

// headers reads the fields of a header.
func (d *described) headers(s *scanner) error {
	if s.next() != '{' {
		return &fault{field: headersName, value: s.excerpt(), accepted: acceptedHeaders}
	}
	header := http.Header{}
	d.Header = header
	return s.members(func(name string) error {
		if s.next() != '[' {
			value, err := s.headerField(name)
			header.Add(name, value)
			return err
		}
		for first := true; ; first = false {
			if more, err := s.item(first); err != nil || !more {
				return err
			}
			value, err := s.textField(headersName + "." + name)
			if err != nil {
				return err
			}
			header.Add(name, value)
		}
	})
}

// headerField reads the value of a field of a header that is no array.
func (s *scanner) headerField(name string) (string, error) {
	value, err := s.stringField(shortField(headersName+"."+name), acceptedHeaders)
	return string(value), err
}

// attributes reads the attributes.
func (d *described) attributes(s *scanner) error {
	if s.next() != '{' {
		return &fault{field: attributesName, value: s.excerpt(), accepted: acceptedAttributes}
	}
	d.Attributes = map[string]string{}
	return s.members(func(name string) error {
		if _, there := d.Attributes[name]; there {
			return twice(attributesName + "." + name)
		}
		value, err := s.textField(attributesName + "." + name)
		d.Attributes[name] = value
		return err
	})
}

// members reads an object, which comes next, and calls member for each name, when its value comes next.
func (s *scanner) members(member func(name string) error) error {
	for first := true; ; first = false {
		name, err := s.member(first)
		if err != nil || name == nil {
			return err
		}
		if err := member(string(name)); err != nil {
			return err
		}
	}
}

// wordOf reads the string of a field.
func wordOf(field string) func(s *scanner) (string, error) {
	return func(s *scanner) (string, error) { return s.textField(field) }
}

// textField reads the string of a field.
func (s *scanner) textField(field string) (string, error) {
	value, err := s.stringField(shortField(field), acceptedText)
	return string(value), err
}

// shortField is the name of a field as errors have it.
func shortField(name string) string {
	if len(name) <= maxExcerpt {
		return name
	}
	return fmt.Sprintf("%.*s...", maxExcerpt, name)
}
