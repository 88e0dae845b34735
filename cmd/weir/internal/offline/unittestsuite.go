// Package offline has the commands that work on files, without a server: test runs the unit tests of a configuration in virtual
// time, and config checks and explains one.
package offline

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// suite is a file of tests.
type suite struct {
	file   *yamlread.Reader
	name   string // of the file
	config string // the file with the configuration
	env    map[string]string
	place  yamlread.Value // where the configuration is named
	tests  []test

	at      time.Time       // when tests begin that do not say so
	request *policy.Request // what all have
}

// test begins with fresh state.
type test struct {
	name    string
	place   yamlread.Value // where it stands
	at      time.Time
	steps   []step
	request *policy.Request // what all have
}

// step is a wait, then requests, then what is expected of them.
type step struct {
	wait    time.Duration
	release bool // gives back what requests hold
	sends   bool // the request
	request *policy.Request
	times   int64
	every   time.Duration // between two of the requests
	hold    bool
	expect  []expectation
}

// expectation is what must be true after the requests of a step.
type expectation struct {
	place    yamlread.Value
	field    string
	expected string   // as it is shown
	policies []string // whose names are expected,
	rules    []string // and those of rules
	// check returns what was got, as it is shown, and whether it is what was expected.
	check func(*result) (got string, ok bool)
}

// result is what became of the requests of a step.
type result struct {
	requests, allowed, exempt int64
	firstRefused, lastAllowed int64 // of the requests, counted from 0; -1 for none
	last                      verdict
	matched                   []string // rules, for the last request
}

// verdict is that of one request.
type verdict struct {
	allowed  bool
	policy   string // of the limit that binds, "" for none
	limit    string // the same, with the name of the limit if the policy has several
	full     string // the same, with the name of the limit
	key      string
	over     []string // policies in mode tag
	decision weir.Decision
}
