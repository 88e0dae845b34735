package checkapi

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
)

const (
	maxCost = algo.MaxPermits

	policyName = "policy"
	keyName    = "key"
	costName   = "cost"
	chargeName = "charge"
	waitName   = "wait"

	requestName = "request"
	expiresName = "expires_in"
	idName      = "id"
	unknownName = "field" // stands for a name that is not known

	// mostWait is how many seconds a client may be ready to wait, and until a reservation expires.
	mostWait = 86400

	acceptedKey    = "must be a string that is not empty"
	acceptedPolicy = "must be a string"
	acceptedCost   = "must be a whole number from 0 to 10^15, without point or exponent"
	acceptedCharge = `must be "before" or "afterwards"`
	acceptedWait   = "must be a number of seconds from 0 to 86400, such as 2.5, without exponent"
	acceptedExpiry = "must be a number of seconds from 0.001 to 86400, such as 2.5, without exponent"
	acceptedID     = "must be the id of a reservation, a string"
	acceptedProbe  = "must be 0 or not there with a cost of 0, which takes nothing"
	acceptedSpent  = "must be 0 or not there with a charge afterwards, as what was spent does not wait"
)

// request is what a body asks. The slices point into the body.
type request struct {
	policy.Named // whose Policy is nil if it is not given

	wait time.Duration
}

func newRequest(cost int64) request { return request{Named: policy.Named{Cost: cost}} }

// asking is a request with what can stand beside it. The slices point into the body.
type asking struct {
	request

	described *described // in place of policy, key, cost, charge and wait
	expires   time.Duration
	id        []byte
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
	chargeField
	waitField
	requestField
	expiresField
	idField

	namedFields = policyField | keyField | costField | chargeField | waitField
)

// dialect is which fields a body may have.
type dialect struct {
	fields   int
	accepted string
}

var (
	checkDialect = dialect{namedFields, "must be policy, key, cost, charge or wait"}
	itemDialect  = dialect{
		policyField | keyField | costField | chargeField | requestField, "must be policy, key, cost and charge, or request",
	}
	reserveDialect = dialect{
		namedFields&^chargeField | requestField | expiresField,
		"must be policy, key, cost, wait and expires_in, or request and expires_in",
	}
	commitDialect = dialect{idField | costField, "must be id or cost"}
	cancelDialect = dialect{idField, "must be id"}
)

// twice says that a field stands in an object more than once.
func twice(field string) error {
	return &fault{field: field, wrong: "stands there twice", accepted: "must be there once"}
}

// noKey says that a key is empty where there must be one.
func noKey() error { return &fault{field: keyName, value: `""`, accepted: acceptedKey} }

// decode reads the object of a check request and checks its values; whether the key may be empty depends on the policy. It
// overwrites body where strings are escaped. It is strict: names are compared exactly, none may occur twice, and what is not
// known is an error, as it is probably a field that was misspelt.
func decode(body []byte) (request, error) {
	a := asking{request: newRequest(1)}
	s := scanner{text: body}
	if err := s.asking(&a, checkDialect); err != nil {
		return request{}, err
	}
	if err := s.end(); err != nil {
		return request{}, err
	}
	return a.request, nil
}

// asking reads an object and checks what it asks, of which cost has its default.
func (s *scanner) asking(a *asking, d dialect) error {
	seen, err := s.object(a, d)
	switch {
	case err != nil:
		return err
	case seen&requestField != 0 && seen&namedFields != 0:
		return &fault{
			field: requestName, wrong: "stands beside policy, key, cost, charge or wait",
			accepted: "must be there in their place",
		}
	case seen&requestField != 0 || d.fields&keyField == 0:
		return nil
	case seen&keyField == 0:
		return &fault{field: keyName, wrong: "is missing", accepted: acceptedKey}
	case a.Cost == 0 && a.wait > 0:
		return &fault{field: waitName, accepted: acceptedProbe}
	case a.Afterwards && a.wait > 0:
		return &fault{field: waitName, accepted: acceptedSpent}
	}
	return nil
}

// end finds what stands after the object.
func (s *scanner) end() error {
	s.space()
	if s.at < len(s.text) {
		return s.fault("expected nothing after the object")
	}
	return nil
}

func (s *scanner) object(a *asking, d dialect) (seen int, err error) {
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
		field, err := s.member(a, d)
		if err != nil {
			return 0, err
		}
		if seen&field != 0 {
			return 0, twice(fieldNames[field])
		}
		seen |= field
		s.space()
	}
	return seen, nil
}

var fieldNames = map[int]string{
	policyField: policyName, keyField: keyName, costField: costName, chargeField: chargeName, waitField: waitName,
	requestField: requestName, expiresField: expiresName, idField: idName,
}

// fieldOf is the field with this name, 0 if there is none.
func fieldOf(name []byte) int {
	switch string(name) {
	case policyName:
		return policyField
	case keyName:
		return keyField
	case costName:
		return costField
	case chargeName:
		return chargeField
	case waitName:
		return waitField
	case requestName:
		return requestField
	case expiresName:
		return expiresField
	case idName:
		return idField
	}
	return 0
}

// member reads a name and its value.
func (s *scanner) member(a *asking, d dialect) (field int, err error) {
	name, err := s.string()
	if err != nil {
		return 0, err
	}
	s.space()
	if !s.take(':') {
		return 0, s.fault("expected : after a name")
	}
	s.space()
	field = fieldOf(name) & d.fields
	switch field {
	case policyField:
		a.Policy, err = s.stringField(policyName, acceptedPolicy)
	case keyField:
		a.Key, err = s.stringField(keyName, acceptedKey)
	case costField:
		a.Cost, err = s.cost()
	case chargeField:
		a.Afterwards, err = s.afterwards()
	case waitField:
		a.wait, err = s.wait()
	case requestField:
		a.described, err = s.described()
	case expiresField:
		a.expires, err = s.expiry()
	case idField:
		a.id, err = s.stringField(idName, acceptedID)
	default:
		err = &fault{field: unknownName, value: excerpt(name), accepted: d.accepted}
	}
	return field, err
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

// afterwards reads when a cost is charged, and reports whether it has been spent already.
func (s *scanner) afterwards() (bool, error) {
	shown := s.excerpt()
	value, err := s.stringField(chargeName, acceptedCharge)
	switch {
	case err != nil:
		return false, err
	case string(value) == "afterwards":
		return true, nil
	case string(value) == "before":
		return false, nil
	}
	return false, &fault{field: chargeName, value: shown, accepted: acceptedCharge}
}

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
