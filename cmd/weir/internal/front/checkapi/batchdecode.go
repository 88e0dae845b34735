package checkapi

import (
	"fmt"
)

const (
	checksName = "checks"
	atomicName = "atomic"

	// mostChecks is how many checks a batch may have, mostAtomic one that is all or nothing.
	mostChecks = 1000
	mostAtomic = 64

	acceptedChecks = "must be an array of 1 to 1000 objects, or to 64 of a batch that is atomic"
	acceptedCheck  = "must be an object with policy, key, cost and charge, or with request"
	acceptedAtomic = "must be true or false"
	acceptedBatch  = "must be checks or atomic"
)

// decodeBatch reads the object of a batch. It is as strict as decode, and overwrites body where strings are escaped.
func decodeBatch(body []byte) (checks []asking, atomic bool, err error) {
	s := scanner{text: body}
	s.space()
	if s.next() != '{' {
		return nil, false, s.fault("the body must be a JSON object")
	}
	seen := map[string]bool{}
	err = s.members(func(name string) (err error) {
		if seen[name] {
			return twice(name)
		}
		switch name {
		case checksName:
			checks, err = s.checks()
		case atomicName:
			atomic, err = s.bool(atomicName, acceptedAtomic)
		default:
			return &fault{field: unknownName, value: excerpt([]byte(name)), accepted: acceptedBatch}
		}
		seen[name] = true
		return err
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return nil, false, err
	case !seen[checksName]:
		return nil, false, &fault{field: checksName, wrong: "is missing", accepted: acceptedChecks}
	case len(checks) == 0:
		return nil, false, &fault{field: checksName, wrong: "is empty", accepted: acceptedChecks}
	case atomic && len(checks) > mostAtomic:
		return nil, false, &fault{field: checksName, wrong: fmt.Sprintf("has %d objects", len(checks)), accepted: acceptedChecks}
	}
	return checks, atomic, nil
}

// checks reads the checks of a batch.
func (s *scanner) checks() (all []asking, err error) {
	if s.next() != '[' {
		return nil, &fault{field: checksName, value: s.excerpt(), accepted: acceptedChecks}
	}
	s.take('[')
	s.space()
	for first := true; !s.take(']'); first = false {
		if !first {
			if !s.take(',') {
				return nil, s.fault("expected , or ]")
			}
			s.space()
		}
		if len(all) == mostChecks {
			return nil, &fault{field: checksName, wrong: "has more than 1000 objects", accepted: acceptedChecks}
		}
		if s.next() != '{' {
			return nil, &fault{field: checkName(len(all)), value: s.excerpt(), accepted: acceptedCheck}
		}
		a := asking{request: newRequest(1)}
		if err := s.asking(&a, itemDialect); err != nil {
			return nil, within(checkName(len(all)), err)
		}
		if a.described != nil && a.described.wait > 0 {
			return nil, &fault{
				field: checkName(len(all)) + ".request.wait", accepted: "must be 0 or not there, as a batch does not wait",
			}
		}
		all = append(all, a)
		s.space()
	}
	return all, nil
}

// checkName is what a check of a batch is called.
func checkName(i int) string { return fmt.Sprintf("%s[%d]", checksName, i) }

// bool reads true or false.
func (s *scanner) bool(field, accepted string) (bool, error) {
	wrong := &fault{field: field, value: s.excerpt(), accepted: accepted}
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
