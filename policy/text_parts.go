package policy

import (
	"net/netip"
	"slices"
)

// textParts is what a Text is computed from.
type textParts struct {
	clients, values []*native // each once
	all             bool      // it is computed from these alone
}

// parted is a Text that says what it is computed from.
type parted interface {
	Parts() (parts []Text, all bool)
}

// partsOf is what a text is computed from.
func partsOf(t Text) textParts {
	p := textParts{all: true}
	p.add(t)
	return p
}

func (p *textParts) add(t Text) {
	var of []Text
	switch t := t.(type) {
	case *native:
		switch {
		case t.client:
			p.clients = addPart(p.clients, t)
		case t.put != nil:
			p.values = addPart(p.values, t)
		}
		return
	case *joined:
		of = t.parts
	case *concatenated:
		of = t.parts
	case parted:
		parts, all := t.Parts()
		of, p.all = parts, p.all && all
	default:
		p.all = false
	}
	for _, part := range of {
		p.add(part)
	}
}

func addPart(to []*native, t *native) []*native {
	if slices.ContainsFunc(to, func(other *native) bool { return other.spelling == t.spelling }) {
		return to
	}
	return append(to, t)
}

// clientForms are what the parts that are taken from a client are for an address.
func (p *textParts) clientForms(client netip.Addr) []string {
	forms := make([]string, 0, len(p.clients))
	for _, t := range p.clients {
		forms = append(forms, string(t.appendTo(nil, &Request{Client: client})))
	}
	return forms
}

// oneField is a header with one field.
type oneField struct{ name, value string }

// Values returns the value of the field.
func (f oneField) Values(name string) []string {
	if name != f.name {
		return nil
	}
	return []string{f.value}
}

// putPathValue makes r a request whose path has a value for a wildcard.
func (r *Request) putPathValue(name, value string) {
	r.seen.BindPathValue(name, value)
	r.Path = r.seen.Path
}
