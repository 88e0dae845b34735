package checkapi

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/algo"
)

const (
	maxKey  = 1024
	maxCost = algo.MaxPermits

	policyName = "policy"
	keyName    = "key"
	costName   = "cost"
	waitName   = "wait"

	// mostWait is how many seconds a client may be ready to wait.
	mostWait = 86400

	acceptedKey    = "must be a string of 1 to 1024 bytes"
	acceptedPolicy = "must be a string"
	acceptedCost   = "must be a whole number from 0 to 10^15, without point or exponent"
	acceptedWait   = "must be a number of seconds from 0 to 86400, such as 2.5, without exponent"
	acceptedProbe  = "must be 0 or not there with a cost of 0, which takes nothing"
	acceptedFields = "must be policy, key, cost or wait"
)

// request is what a body asks. The slices point into the body.
type request struct {
	policy []byte // nil if it is not given
	key    []byte
	cost   int64
	wait   time.Duration
}

// fault says what is wrong with a body.
type fault struct {
	field    string // "" if the body is not such an object at all
	value    string // what stands there, shortened
	wrong    string // what is wrong with it, "" if that follows from what is accepted
	accepted string
}

// Error is "field value: wrong; accepted", without what is not known.
func (f *fault) Error() string {
	text := f.wrong
	if f.wrong != "" && f.accepted != "" {
		text += "; "
	}
	text += f.accepted
	switch {
	case f.field == "":
		return text
	case f.value == "":
		return f.field + ": " + text
	default:
		return f.field + " " + f.value + ": " + text
	}
}

// The fields as bits, to see which have been there.
const (
	policyField = 1 << iota
	keyField
	costField
	waitField
)

// noKey says that a key is empty where there must be one.
func noKey() error { return &fault{field: keyName, value: `""`, accepted: acceptedKey} }

// decode reads the object of a check request and checks its values; whether the key may be empty depends on the policy. It
// overwrites body where strings are escaped. It is strict: names are compared exactly, none may occur twice, and what is not
// known is an error, as it is probably a field that was misspelt.
func decode(body []byte) (request, error) {
	r := request{cost: 1}
	s := scanner{text: body}
	seen, err := s.object(&r)
	if err != nil {
		return request{}, err
	}
	switch {
	case seen&keyField == 0:
		return request{}, &fault{field: keyName, wrong: "is missing", accepted: acceptedKey}
	case len(r.key) > maxKey:
		return request{}, &fault{
			field: keyName, value: excerpt(r.key), wrong: fmt.Sprintf("has %d bytes", len(r.key)), accepted: acceptedKey,
		}
	case r.cost == 0 && r.wait > 0:
		return request{}, &fault{field: waitName, accepted: acceptedProbe}
	}
	return r, nil
}

func (s *scanner) object(r *request) (seen int, err error) {
	s.space()
	if !s.take('{') {
		return 0, s.fault("the body must be a JSON object")
	}
	s.space()
	for first := true; !s.take('}'); first = false {
		if !first {
			if !s.take(',') {
				return 0, s.fault("expected , or }")
			}
			s.space()
		}
		field, err := s.member(r)
		if err != nil {
			return 0, err
		}
		if seen&field != 0 {
			return 0, &fault{field: fieldNames[field], wrong: "stands there twice", accepted: "must be there once"}
		}
		seen |= field
		s.space()
	}
	s.space()
	if s.at < len(s.text) {
		return 0, s.fault("expected nothing after the object")
	}
	return seen, nil
}

var fieldNames = map[int]string{policyField: policyName, keyField: keyName, costField: costName, waitField: waitName}

// member reads a name and its value.
func (s *scanner) member(r *request) (field int, err error) {
	name, err := s.string()
	if err != nil {
		return 0, err
	}
	s.space()
	if !s.take(':') {
		return 0, s.fault("expected : after a name")
	}
	s.space()
	switch string(name) {
	case policyName:
		r.policy, err = s.stringField(policyName, acceptedPolicy)
		return policyField, err
	case keyName:
		r.key, err = s.stringField(keyName, acceptedKey)
		return keyField, err
	case costName:
		r.cost, err = s.cost()
		return costField, err
	case waitName:
		r.wait, err = s.wait()
		return waitField, err
	}
	return 0, &fault{field: "field", value: excerpt(name), accepted: acceptedFields}
}

func (s *scanner) stringField(field, accepted string) ([]byte, error) {
	if s.next() != '"' {
		return nil, &fault{field: field, value: s.excerpt(), accepted: accepted}
	}
	value, err := s.string()
	if inner, ok := errors.AsType[*fault](err); ok {
		inner.wrong = field + ": " + inner.wrong
	}
	return value, err
}

// cost reads an integer from 0 to maxCost.
func (s *scanner) cost() (int64, error) {
	wrong := &fault{field: costName, value: s.excerpt(), accepted: acceptedCost}
	start := s.at
	var n int64
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		n = n*10 + int64(s.text[s.at]-'0')
		if n > maxCost {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return n, nil
	}
	return 0, wrong
}

// wait reads a number of seconds from 0 to mostWait, to the nanosecond.
func (s *scanner) wait() (time.Duration, error) {
	wrong := &fault{field: waitName, value: s.excerpt(), accepted: acceptedWait}
	var d time.Duration
	start := s.at
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		if d = d*10 + time.Duration(s.text[s.at]-'0')*time.Second; d > mostWait*time.Second {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	if s.take('.') {
		first := s.at
		for unit := time.Second / 10; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
			d += time.Duration(s.text[s.at]-'0') * unit
			unit /= 10
		}
		if s.at == first || d > mostWait*time.Second {
			return 0, wrong
		}
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return d, nil
	}
	return 0, wrong
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

const maxExcerpt = 40

// excerpt is the beginning of value in quotes, with what does not print escaped.
func excerpt(value []byte) string {
	if len(value) <= maxExcerpt {
		return fmt.Sprintf("%q", value)
	}
	cut := maxExcerpt
	for cut > maxExcerpt-utf8.UTFMax && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return fmt.Sprintf("%q...", value[:cut])
}
