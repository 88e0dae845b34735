package match

import (
	"errors"
	"net/netip"
)

// written are conditions as a file has them.
type written struct {
	Methods, Hosts, Paths []string
	Headers               []field
	Clients               []netip.Prefix
	Routes, Protocols     []string
}

type field struct {
	Name, Value string
	Absent      bool
}

func (w *written) conditions() (c Conditions, err error) {
	for kind, values := range map[Kind][]string{
		Method: w.Methods, Host: w.Hosts, Path: w.Paths, Route: w.Routes, Protocol: w.Protocols,
	} {
		for _, value := range values {
			err = errors.Join(err, c.Add(kind, value))
		}
	}
	for _, h := range w.Headers {
		err = errors.Join(err, c.AddHeader(h.Name, h.Value, h.Absent))
	}
	for _, network := range w.Clients {
		err = errors.Join(err, c.AddClient(network))
	}
	return c, err
}

// newIndex returns the index of rules, or all that is wrong with them.
func newIndex(rules []written) (*Index, error) {
	all := make([]Conditions, len(rules))
	var wrong error
	for i := range rules {
		var err error
		all[i], err = rules[i].conditions()
		wrong = errors.Join(wrong, err)
	}
	return NewIndex(all), wrong
}

// again is the request of a View that was not asked about anything yet.
func (v *View) again() *View {
	other := *v
	other.notes = notes{}
	return &other
}
