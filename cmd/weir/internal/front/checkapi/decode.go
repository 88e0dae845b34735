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
	checksName  = "checks"
	atomicName  = "atomic"
	unknownName = "field" // stands for a name that is not known

	// mostChecks is how many checks a batch may have, mostAtomic one that is all or nothing.
	mostChecks = 1000
	mostAtomic = 64
	// mostWait is how many seconds a client may be ready to wait, and until a reservation expires.
	mostWait = 86400

	acceptedKey      = "must be a string that is not empty"
	acceptedAKey     = `must be a string, which is "" for a policy without a key`
	acceptedPolicy   = "must be a string"
	acceptedCost     = "must be a whole number from 0 to 10^15, without point or exponent"
	acceptedCharge   = `must be "before" or "afterwards"`
	acceptedWait     = "must be a number of seconds from 0 to 86400, such as 2.5, without exponent"
	acceptedExpiry   = "must be a number of seconds from 0.001 to 86400, such as 2.5, without exponent"
	acceptedID       = "must be the id of a reservation, a string"
	acceptedProbe    = "must be 0 or not there with a cost of 0, which takes nothing"
	acceptedSpent    = "must be 0 or not there with a charge afterwards, as what was spent does not wait"
	acceptedChecks   = "must be an array of 1 to 1000 objects, or to 64 of a batch that is atomic"
	acceptedCheck    = "must be an object with policy, key, cost and charge, or with request"
	acceptedAtomic   = "must be true or false"
	acceptedReserved = "must be a whole number from 1 to 10^15: what is not known yet is reserved and told by " + commitPath
)

// question is what a body asks about a policy, about a request that it describes, or about a reservation. The slices point into
// the body.
type question struct {
	policy.Named // whose Policy is nil if it is not given

	described *described // in place of policy, key, cost, charge and wait
	wait      time.Duration
	expires   time.Duration
	id        []byte
}

// ofCost is a question of which the cost is not told yet.
func ofCost(cost int64) question {
	return question{Named: policy.Named{Cost: cost}}
}

// batch is what the body of a batch asks.
type batch struct {
	checks []question
	atomic bool
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

// dialect is an object that a body may be: its fields, and what they must be together.
type dialect[T any] struct {
	accepted string
	fields   []field[T]
	check    func(d *dialect[T], to *T, given uint) error
}

// field is a member of an object.
type field[T any] struct {
	name string
	read func(s *scanner, to *T) error
}

// member is a field whose value is kept in a place of its own.
func member[T, V any](name string, read func(s *scanner) (V, error), at func(to *T) *V) field[T] {
	return field[T]{name, func(s *scanner, to *T) (err error) {
		*at(to), err = read(s)
		return err
	}}
}

// The fields of questions.
var (
	policyField = field[question]{policyName, func(s *scanner, q *question) (err error) {
		q.Policy, err = s.stringField(policyName, acceptedPolicy)
		return err
	}}
	keyField = field[question]{keyName, func(s *scanner, q *question) (err error) {
		q.Key, err = s.stringField(keyName, acceptedKey)
		return err
	}}
	costField = field[question]{costName, func(s *scanner, q *question) (err error) {
		q.Cost, err = s.cost()
		return err
	}}
	chargeField = member(chargeName, (*scanner).afterwards, func(q *question) *bool { return &q.Afterwards })
	waitField   = member(waitName, (*scanner).wait, func(q *question) *time.Duration { return &q.wait })
	asField     = member(requestName, (*scanner).described, func(q *question) **described { return &q.described })
	untilField  = member(expiresName, (*scanner).expiry, func(q *question) *time.Duration { return &q.expires })
	idField     = member(idName, (*scanner).id, func(q *question) *[]byte { return &q.id })
)

// The objects that bodies may be.
var (
	checkDialect = dialect[question]{
		"must be policy, key, cost, charge or wait",
		[]field[question]{policyField, keyField, costField, chargeField, waitField},
		together,
	}
	itemDialect = dialect[question]{
		"must be policy, key, cost and charge, or request",
		[]field[question]{policyField, keyField, costField, chargeField, asField},
		together,
	}
	reserveDialect = dialect[question]{
		"must be policy, key, cost, wait and expires_in, or request and expires_in",
		[]field[question]{policyField, keyField, costField, waitField, asField, untilField},
		reserves,
	}
	commitDialect = dialect[question]{"must be id or cost", []field[question]{idField, costField}, settles}
	cancelDialect = dialect[question]{"must be id", []field[question]{idField}, settles}
	batchDialect  = dialect[batch]{"must be checks or atomic", []field[batch]{
		member(checksName, (*scanner).checks, func(b *batch) *[]question { return &b.checks }),
		member(atomicName, (*scanner).atomic, func(b *batch) *bool { return &b.atomic }),
	}, batches}
)

// together checks what a question asks of a policy, or of a request.
func together(d *dialect[question], q *question, given uint) error {
	switch {
	case q.described != nil && d.has(given, policyName, keyName, costName, chargeName, waitName):
		return &fault{
			field: requestName, wrong: "stands beside policy, key, cost, charge or wait",
			accepted: "must be there in their place",
		}
	case q.described != nil:
		return nil
	case q.Key == nil:
		return &fault{field: keyName, wrong: "is missing", accepted: acceptedAKey}
	case q.Cost == 0 && q.wait > 0:
		return &fault{field: waitName, accepted: acceptedProbe}
	case q.Afterwards && q.wait > 0:
		return &fault{field: waitName, accepted: acceptedSpent}
	}
	return nil
}

// reserves checks a question whose answer is kept as a reservation.
func reserves(d *dialect[question], q *question, given uint) error {
	err := together(d, q, given)
	switch {
	case err != nil:
	case q.described == nil && q.Cost == 0:
		err = &fault{field: costName, value: "0", accepted: acceptedReserved}
	case q.described != nil && q.described.probe:
		err = &fault{field: requestName + "." + costName, value: "0", accepted: acceptedReserved}
	}
	return err
}

// settles checks what ends a reservation.
func settles(_ *dialect[question], q *question, _ uint) error {
	if q.id == nil {
		return &fault{field: idName, wrong: "is missing", accepted: acceptedID}
	}
	return nil
}

// batches checks a batch.
func batches(d *dialect[batch], b *batch, given uint) error {
	switch {
	case !d.has(given, checksName):
		return &fault{field: checksName, wrong: "is missing", accepted: acceptedChecks}
	case len(b.checks) == 0:
		return &fault{field: checksName, wrong: "is empty", accepted: acceptedChecks}
	case b.atomic && len(b.checks) > mostAtomic:
		return &fault{field: checksName, wrong: fmt.Sprintf("has %d objects", len(b.checks)), accepted: acceptedChecks}
	}
	return nil
}

// twice says that a field stands in an object more than once.
func twice(field string) error {
	return &fault{field: field, wrong: "stands there twice", accepted: "must be there once"}
}

// noKey says that a key is empty where there must be one.
func noKey() error { return &fault{field: keyName, value: `""`, accepted: acceptedKey} }

// decode reads a body and checks its values; whether a key may be empty depends on the policy. It overwrites the body where
// strings are escaped. It is strict: names are compared exactly, none may occur twice, and what is not known is an error, as it
// is probably a field that was misspelt.
func decode[T any](d *dialect[T], s *scanner, to *T) error {
	s.space()
	if s.next() != '{' {
		return s.fault("the body must be a JSON object")
	}
	if err := d.read(s, to); err != nil {
		return err
	}
	s.space()
	if s.at < len(s.text) {
		return s.fault("expected nothing after the object")
	}
	return nil
}

// read reads an object, which comes next.
func (d *dialect[T]) read(s *scanner, to *T) error {
	given, at := uint(0), -1
	for first := true; ; first = false {
		name, err := s.member(first)
		if err != nil {
			return err
		}
		if name == nil {
			return d.check(d, to, given)
		}
		if at = d.find(name, at+1); at < 0 {
			return &fault{field: unknownName, value: excerpt(name), accepted: d.accepted}
		}
		if err := d.fields[at].read(s, to); err != nil {
			return err
		}
		if given&(1<<at) != 0 {
			return twice(d.fields[at].name)
		}
		given |= 1 << at
	}
}

// find returns the place of a field, -1 if there is none. Most clients send fields in their order, and from begins the search.
func (d *dialect[T]) find(name []byte, from int) int {
	for i := range d.fields {
		at := from + i
		if at >= len(d.fields) {
			at -= len(d.fields)
		}
		if string(name) == d.fields[at].name {
			return at
		}
	}
	return -1
}

// has reports whether one of the fields was given.
func (d *dialect[T]) has(given uint, names ...string) bool {
	for _, name := range names {
		for at := range d.fields {
			if d.fields[at].name == name && given&(1<<at) != 0 {
				return true
			}
		}
	}
	return false
}

// within says in which field a fault is.
func within(field string, err error) error {
	f, ok := errors.AsType[*fault](err)
	switch {
	case !ok:
	case f.field == "":
		f.wrong = field + ": " + f.wrong
	case f.field == unknownName:
		if f.wrong != "" { // it has a place already: in request
			field += "." + f.wrong[len("in "):]
		}
		f.wrong = "in " + field
	default:
		f.field = field + "." + f.field
	}
	return err
}

// checks reads the checks of a batch.
func (s *scanner) checks() (all []question, err error) {
	if s.next() != '[' {
		return nil, &fault{field: checksName, value: s.excerpt(), accepted: acceptedChecks}
	}
	for first := true; ; first = false {
		if more, err := s.item(first); err != nil || !more {
			return all, err
		}
		if len(all) == mostChecks {
			return nil, &fault{field: checksName, wrong: "has more than 1000 objects", accepted: acceptedChecks}
		}
		if s.next() != '{' {
			return nil, &fault{field: checkName(len(all)), value: s.excerpt(), accepted: acceptedCheck}
		}
		all = append(all, ofCost(1))
		q := &all[len(all)-1]
		if err := itemDialect.read(s, q); err != nil {
			return nil, within(checkName(len(all)-1), err)
		}
		if q.described != nil && q.described.wait > 0 {
			return nil, &fault{
				field: checkName(len(all)-1) + ".request.wait", accepted: "must be 0 or not there, as a batch does not wait",
			}
		}
	}
}

// checkName is what a check of a batch is called.
func checkName(i int) string { return fmt.Sprintf("%s[%d]", checksName, i) }

// id reads the id of a reservation.
func (s *scanner) id() ([]byte, error) { return s.stringField(idName, acceptedID) }

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

// atomic reads whether a batch is all or nothing.
func (s *scanner) atomic() (bool, error) {
	wrong := &fault{field: atomicName, value: s.excerpt(), accepted: acceptedAtomic}
	start := s.at
	for s.at < len(s.text) && isBare(s.text[s.at]) {
		s.at++
	}
	switch string(s.text[start:s.at]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, wrong
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
