package checkapi

import (
	"errors"
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
	acceptedRequest    = "must be an object that describes a request as that of /v1/decide does"
	acceptedDescribed  = "must be protocol, method, host, path, query, route, headers, client, attributes, cost or wait"

	pathName, queryName, hostName           = "path", "query", "host"
	clientName, headersName, attributesName = "client", "headers", "attributes"
)

// described is a request that a body describes.
type described struct {
	policy.Request

	seen   map[string]bool
	target flags.Target
	probe  bool // the cost is 0
	wait   time.Duration
}

// decodeDescribed reads the object that describes a request. It is as strict as decode, and overwrites body where strings are
// escaped. Everything may be missing. A cost of 0 makes it a probe, which takes nothing: then r has the cost that
// it would have without one. wait is how long the client is ready to wait.
func decodeDescribed(body []byte, r *policy.Request) (probe bool, wait time.Duration, err error) {
	*r = policy.Request{Protocol: "http"}
	s := scanner{text: body}
	s.space()
	if s.next() != '{' {
		return false, 0, s.fault("the body must be a JSON object")
	}
	d := described{seen: make(map[string]bool)}
	if err := d.object(&s); err != nil {
		return false, 0, err
	}
	if err := s.end(); err != nil {
		return false, 0, err
	}
	*r = d.Request
	return d.probe, d.wait, nil
}

// object reads the object, which comes next.
func (d *described) object(s *scanner) error {
	err := s.members(func(name string) error {
		if d.seen[name] {
			return twice(name)
		}
		d.seen[name] = true
		return d.member(s, name)
	})
	switch {
	case err != nil:
		return err
	case d.probe && d.wait > 0:
		return &fault{field: waitName, accepted: acceptedProbe}
	case d.seen[queryName] && d.target.HasQuery:
		return &fault{field: queryName, value: excerpt([]byte(d.Query)), accepted: acceptedQuery}
	case d.seen[hostName] && d.target.Host != "" && !strings.EqualFold(d.Host, d.target.Host):
		return &fault{field: hostName, value: excerpt([]byte(d.Host)), accepted: acceptedHost}
	}
	if d.Protocol == "" {
		d.Protocol = "http"
	}
	if query := d.Query; d.seen[pathName] {
		if d.target.Set(&d.Request); !d.target.HasQuery {
			d.Query = query
		}
	}
	if d.target.Host != "" {
		d.Host = d.target.Host
	}
	return nil
}

// described reads the object of a field that describes a request.
func (s *scanner) described() (*described, error) {
	if s.next() != '{' {
		return nil, &fault{field: requestName, value: s.excerpt(), accepted: acceptedRequest}
	}
	d := &described{seen: make(map[string]bool)}
	return d, within(requestName, d.object(s))
}

// within says in which field a fault is.
func within(field string, err error) error {
	f, ok := errors.AsType[*fault](err)
	switch {
	case !ok:
	case f.field == "":
		f.wrong = field + ": " + f.wrong
	case f.field == unknownName:
		if inner, ok := strings.CutPrefix(f.wrong, "in "); ok {
			field += "." + inner
		}
		f.wrong = "in " + field
	default:
		f.field = field + "." + f.field
	}
	return err
}

// member reads the value of a name.
func (d *described) member(s *scanner, name string) (err error) {
	switch name {
	case "protocol":
		d.Protocol, err = s.textField(name)
	case "method":
		d.Method, err = s.textField(name)
	case hostName:
		d.Host, err = s.textField(name)
	case queryName:
		d.Query, err = s.textField(name)
	case "route":
		d.Route, err = s.textField(name)
	case pathName:
		return d.path(s)
	case clientName:
		return d.client(s)
	case headersName:
		return d.headers(s)
	case attributesName:
		return d.attributes(s)
	case costName:
		d.Cost, err = s.cost()
		d.probe = d.Cost == 0
	case waitName:
		d.wait, err = s.wait()
	default:
		return &fault{field: unknownName, value: excerpt([]byte(name)), accepted: acceptedDescribed}
	}
	return err
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
	err := s.members(func(name string) error {
		if s.next() == '"' {
			value, err := s.textField(headersName + "." + name)
			header.Add(name, value)
			return err
		}
		if s.next() != '[' {
			return &fault{field: headersName + "." + name, value: s.excerpt(), accepted: acceptedHeaders}
		}
		s.take('[')
		s.space()
		for first := true; !s.take(']'); first = false {
			if !first && !s.take(',') {
				return s.fault("expected , or ]")
			}
			s.space()
			value, err := s.textField(headersName + "." + name)
			if err != nil {
				return err
			}
			header.Add(name, value)
			s.space()
		}
		return nil
	})
	d.Header = header
	return err
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

// members reads an object and calls member for each name, when its value comes next.
func (s *scanner) members(member func(name string) error) error {
	s.take('{')
	s.space()
	for first := true; !s.take('}'); first = false {
		if !first {
			if !s.take(',') {
				return s.fault("expected , or }")
			}
			s.space()
		}
		name, err := s.string()
		if err != nil {
			return err
		}
		text := string(name)
		s.space()
		if !s.take(':') {
			return s.fault("expected : after a name")
		}
		s.space()
		if err := member(text); err != nil {
			return err
		}
		s.space()
	}
	return nil
}

// textField reads the string of a field.
func (s *scanner) textField(field string) (string, error) {
	value, err := s.stringField(shortField(field), acceptedText)
	return string(value), err
}

// shortField is the name of a field as it is told.
func shortField(name string) string {
	if len(name) <= maxExcerpt {
		return name
	}
	return fmt.Sprintf("%.*s...", maxExcerpt, name)
}
