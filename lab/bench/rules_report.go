package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirhq/weir/policy"
)

// The targets of the rule engine.
const (
	// RulesTarget is the most that a decision may take with many rules relative to few, and with expressions relative to none,
	// and TakesTarget relative to the takes that it makes of several limits.
	RulesTarget = 2
	TakesTarget = 2
	// ThreeLimitsTarget is how many nanoseconds a decision of three limits may take, without expressions.
	ThreeLimitsTarget = 750
)

// How many rules are few, and how many are many.
const (
	fewRules  = 10
	manyRules = 10_000
)

// The names of what the engine is compared with.
const (
	byMap         = "map"
	byStep        = "TryAcquireAll"
	byFewRules    = "10 rules"
	byNoCEL       = "no CEL"
	noPeerOfRules = "no peer has rules"
)

// RuleResult is what was measured of the decisions on one kind of request.
type RuleResult struct {
	RowResult

	// Request is what is decided on in short, Rules how many rules there are, Limits how many apply to each request.
	Request string `json:"request"`
	Rules   int    `json:"rules"`
	Limits  int    `json:"limits"`
	// Refused tells that the last limit refuses every request, Expressions that each rule has two in CEL.
	Refused     bool `json:"refused"`
	Expressions bool `json:"expressions"`
}

// RulesReport is what was measured of the rule engine.
type RulesReport struct {
	Results []RuleResult `json:"rows,omitempty"`
}

// Rows are the rows of the results.
func (r RulesReport) Rows() (all []RowResult) {
	for i := range r.Results {
		all = append(all, r.Results[i].RowResult)
	}
	return all
}

// ruleRow is a row that is not made yet: its rules and requests take memory.
type ruleRow struct {
	rules, limits, goroutines int
	refused, expressions      bool
}

func ruleRows() (all []ruleRow) {
	for _, rules := range []int{fewRules, manyRules} {
		all = append(all, ruleRow{rules: rules, goroutines: 1})
	}
	for _, goroutines := range []int{1, 2} {
		for _, limits := range []int{1, 3} {
			for _, rules := range []int{fewRules, manyRules} {
				all = append(all, ruleRow{rules: rules, limits: limits, goroutines: goroutines})
			}
		}
	}
	return append(all,
		ruleRow{rules: manyRules, limits: 3, goroutines: 1, refused: true},
		ruleRow{rules: fewRules, limits: 1, goroutines: 1, expressions: true},
	)
}

// request is the kind of request in short.
func (r ruleRow) request() string {
	s := "no limit"
	switch {
	case r.limits == 1:
		s = "1 limit"
	case r.limits > 1:
		s = fmt.Sprintf("%d limits", r.limits)
	}
	if r.refused {
		s += ", refuse"
	}
	if r.expressions {
		s += ", CEL"
	}
	return s
}

func (r ruleRow) name() string { return fmt.Sprintf("%s, %s rules", r.request(), count(r.rules)) }

func (r ruleRow) id() string { return Row{Name: r.name(), Goroutines: r.goroutines}.ID() }

// how says what is measured.
func (r ruleRow) how() string {
	var s strings.Builder
	switch r.limits {
	case 0:
		s.WriteString("One rule applies to the request, and has no limits.")
	case 1:
		s.WriteString("One rule applies to the request, and has the limit.")
	default:
		fmt.Fprintf(&s, "A rule for all requests has one limit, and the rule that applies to the request has %d.", r.limits-1)
	}
	switch {
	case r.refused:
		s.WriteString(" The last limit has one permit a day, which was taken before: every request is refused, and costs the " +
			"other limits nothing. By hand it costs them their permits.")
	case r.limits > 0:
		s.WriteString(" Every request is granted.")
	}
	if r.expressions {
		fmt.Fprintf(&s, " Each rule has the condition `%s` and counts requests under `%s`, which is at hand for the floors; "+
			"`%s` is the same without either.", ruleWhen, ruleKey, byNoCEL)
	}
	if r.goroutines > 1 {
		s.WriteString(" Two goroutines ask one engine for different requests.")
	}
	return s.String()
}

// engine returns an engine and requests for it. Each of these was decided on once: then every client is known, the memory of
// the verdicts has grown, and the permits are spent where they are to be.
func (r ruleRow) engine(batches int) (e *policy.Engine, w ruleWork, err error) {
	set, key := ruleSet(r.rules, r.limits, r.refused), policy.ClientIP()
	if r.expressions {
		if wrong := addExpressions(set); wrong != nil {
			return nil, w, wrong
		}
		key = set.Policies[0].Key
	}
	if e, err = policy.NewEngine(set, policy.EngineOptions{}); err != nil {
		return nil, w, fmt.Errorf("bench: the rules of %s: %w", r.id(), err)
	}
	if w, err = newRuleWork(r.rules, batches, key); err == nil {
		w.once(askEngine(e))
	}
	return e, w, err
}

// beside is the same decision of another engine, and the most that this one may take relative to it: with few rules, or
// without expressions; ok is false if there is nothing to compare.
func (r ruleRow) beside() (by string, other ruleRow, target float64, ok bool) {
	other = r
	switch {
	case r.expressions:
		other.expressions = false
		return byNoCEL, other, RulesTarget, true
	case r.rules > fewRules:
		other.rules = fewRules
		return byFewRules, other, RulesTarget, true
	}
	return "", other, 0, false
}

// row makes the row with some batches of requests, and a function that closes its engines.
func (r ruleRow) row(batches int) (row Row, end func(), err error) {
	var engines []*policy.Engine
	end = func() {
		for _, e := range engines {
			_ = e.Close()
		}
	}
	e, w, err := r.engine(batches)
	if err != nil {
		return Row{}, end, err
	}
	engines = append(engines, e)
	row = Row{
		Name: r.name(), Goroutines: r.goroutines, Refused: r.refused, How: r.how(), NoPeer: noPeerOfRules,
		Ours: w.subject(byWeir, engineCall, askEngine(e)),
	}
	if r.limits > 1 && r.goroutines == 1 {
		row.Most = ThreeLimitsTarget
	}
	if r.limits == 0 {
		row.Floors = []Floor{{w.subject(byMap, "_, ok := rules[name]", askMap(r.rules)), 0}}
	} else {
		hand := newHandLimiters(r.limits, r.refused)
		w.once(hand.askAll)
		takes, call, target := "1 Take", "Keyed[string].Take(key, 1)", 0.0
		if r.limits > 1 {
			target = TakesTarget
			takes, call = fmt.Sprintf("%d Takes", r.limits), call+" of each limiter"
		}
		row.Floors = []Floor{
			{w.subject(takes, call, hand.askEach), target},
			{w.subject(byStep, "keyset.TryAcquireAll(leases, charges...); Lease.Release() of each", hand.askAll), 0},
		}
	}
	if by, other, target, ok := r.beside(); ok {
		less, requests, err := other.engine(batches)
		if err != nil {
			return Row{}, end, err
		}
		engines = append(engines, less)
		row.Floors = append(row.Floors, Floor{requests.subject(by, engineCall, askEngine(less)), target})
	}
	return row, end, nil
}

func ruleSections() (all []section) {
	for _, r := range ruleRows() {
		all = append(all, section{"rules, " + r.id(), func(ctx context.Context, set Settings, report *Report) error {
			row, end, err := r.row(set.RuleBatches) //nolint:contextcheck // an engine has a context of its own
			defer end()
			if err != nil {
				return err
			}
			result, err := row.Measure(ctx, set)
			if err != nil {
				return err
			}
			result.NoPeer = ""
			report.Rules.Results = append(report.Rules.Results, RuleResult{
				RowResult: result, Request: r.request(), Rules: r.rules, Limits: r.limits, Refused: r.refused,
				Expressions: r.expressions,
			})
			return nil
		}})
	}
	return all
}

// goals are all numbers that the engine is to hold.
func (r RulesReport) goals() (all []Goal) {
	all = rowGoals(r.Rows())
	for i := range r.Results {
		row := &r.Results[i]
		name := fmt.Sprintf("%s, goroutines: %d, no allocation", row.Name, row.Goroutines)
		all = append(all, Goal{name, row.Ours.Allocs < nearlyNone, fmt.Sprintf("%.3f", row.Ours.Allocs)})
	}
	return all
}
