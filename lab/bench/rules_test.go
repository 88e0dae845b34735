package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/policy"
)

// TestRuleRequests decides on every request of every row and looks at which rules and limits held: an engine that found no
// rule would be fast for nothing.
func TestRuleRequests(t *testing.T) {
	for _, r := range ruleRows() {
		if r.goroutines > 1 {
			continue // the same requests
		}
		e, w, err := r.engine(few().RuleBatches)
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		w.once(func(p *rulePart, n int) (granted int) {
			v := &p.verdict
			for i := range p.requests[:n] {
				e.Take(&p.requests[i], v)
				if !r.holds(v, p, i) {
					if wrong++; wrong < 5 {
						t.Errorf("%s: %+v is held to %+v, allowed %v, want %s and the key %s", r.id(), p.requests[i], v.Parts, v.Allowed,
							p.rules[i], p.keys[i])
					}
				}
				v.Release()
			}
			return granted
		})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// holds reports whether a verdict is that of the i-th request.
func (r ruleRow) holds(v *policy.Verdict, p *rulePart, i int) bool {
	if len(v.Parts) != r.limits || v.Allowed == r.refused {
		return false
	}
	policies := map[string]bool{}
	for j := range v.Parts {
		part, rule := &v.Parts[j], p.rules[i]
		if r.limits > 1 && j == 0 {
			rule = "all"
		}
		policies[part.Policy.Name] = true
		if part.Rule.Name != rule || string(part.Key) != p.keys[i] || r.refused && part.Decision.Allowed != (j < r.limits-1) {
			return false
		}
	}
	return len(policies) == r.limits
}

// TestRequestsComeToTheRules counts the rules and clients that the requests are of.
func TestRequestsComeToTheRules(t *testing.T) {
	for rules, least := range map[int]int{fewRules: fewRules, manyRules: 6000} {
		w, err := newRuleWork(rules, DefaultSettings().RuleBatches, policy.ClientIP())
		if err != nil {
			t.Fatal(err)
		}
		named, clients, byShape := map[string]bool{}, map[string]bool{}, map[int]int{}
		w.once(func(p *rulePart, n int) (granted int) {
			for i := range p.requests[:n] {
				named[p.rules[i]], clients[p.keys[i]] = true, true
				var number int
				if _, err := fmt.Sscanf(p.rules[i], "rule %d", &number); err != nil {
					t.Fatal(err)
				}
				byShape[number%shapes]++
			}
			return n
		})
		if len(named) < least || len(clients) != ruleClients || len(byShape) != shapes {
			t.Errorf("%d rules: requests of %d rules, %d clients, %d shapes", rules, len(named), len(clients), len(byShape))
		}
		for shape, n := range byShape {
			if share := float64(n) / float64(DefaultSettings().RuleBatches*batch); share < 0.15 || share > 0.25 {
				t.Errorf("%d rules: the shape %d has a share of %.2f of the requests", rules, shape, share)
			}
		}
	}
}

// TestRuleExpressionsAreExpressions makes sure that the row with CEL has some: what only names something never runs as one.
func TestRuleExpressionsAreExpressions(t *testing.T) {
	set := ruleSet(fewRules, 1, false)
	if err := addExpressions(set); err != nil {
		t.Fatal(err)
	}
	for _, x := range []any{set.Policies[0].Key, set.Rules[0].When} {
		if name := fmt.Sprintf("%T", x); !strings.Contains(name, "config.") {
			t.Errorf("%v is a %s", x, name)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r, i := ruleRequest(rng, fewRules)
		holds, err := set.Rules[i].When.Holds(&r)
		if !holds || err != nil {
			t.Fatalf("the condition of %+v: %v, %v", r, holds, err)
		}
		text, err := set.Policies[0].Key.AppendTo(nil, &r)
		want := r.Client.String() + "/read"
		if r.Method == http.MethodPost {
			want = r.Client.String() + "/write"
		}
		if string(text) != want || err != nil {
			t.Fatalf("the key of %+v is %q, %v, want %q", r, text, err, want)
		}
	}
}

// TestHandLimitersLimit makes sure that the floors ask limiters that limit.
func TestHandLimitersLimit(t *testing.T) {
	w, err := newRuleWork(fewRules, few().RuleBatches, policy.ClientIP())
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]bool{}
	requests := w.once(func(p *rulePart, n int) int {
		for _, key := range p.keys[:n] {
			clients[key] = true
		}
		return n
	})
	for name, ask := range map[string]func(all handLimiters) func(p *rulePart, n int) int{
		"one after the other": func(all handLimiters) func(p *rulePart, n int) int { return all.askEach },
		"in one step":         func(all handLimiters) func(p *rulePart, n int) int { return all.askAll },
	} {
		if n := w.once(ask(newHandLimiters(3, false))); n != requests {
			t.Errorf("%s: %d requests were granted, want all %d", name, n, requests)
		}
		all := newHandLimiters(3, true)
		if first, second := w.once(ask(all)), w.once(ask(all)); first != len(clients) || second != 0 {
			t.Errorf("%s: %d requests and then %d were granted, want one of each of %d clients and then none", name, first, second,
				len(clients))
		}
	}
	if n := w.once(askMap(fewRules)); n != requests {
		t.Errorf("the map has %d of the rules, want all %d", n, requests)
	}
}

// TestRuleSections measures everything of the rule engine, and shows it.
func TestRuleSections(t *testing.T) {
	r := Report{Machine: ThisMachine(), Count: 1, Time: "1ms"}
	for _, s := range ruleSections() {
		if err := s.measure(t.Context(), few(), &r); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	rows := ruleRows()
	if len(r.Rules.Results) != len(rows) {
		t.Fatalf("%d results of %d rows", len(r.Rules.Results), len(rows))
	}
	for i := range r.Rules.Results {
		res, row := &r.Rules.Results[i], rows[i]
		want := []string{fmt.Sprintf("%d Takes", row.limits), byStep, byFewRules}
		switch row.limits {
		case 0:
			want = []string{byMap, byFewRules}
		case 1:
			want[0] = "1 Take"
		}
		if row.rules == fewRules {
			want = want[:len(want)-1]
		}
		if row.expressions {
			want = append(want, byNoCEL)
		}
		var got []string
		for _, f := range res.Floors {
			got = append(got, f.By)
			if !(f.Ratio > 0) || !(f.Nanos > 0) || (f.Target > 0) != (f.By == byFewRules || f.By == byNoCEL || f.By == "3 Takes") {
				t.Errorf("%s: %+v", res.Name, f)
			}
		}
		if !slices.Equal(got, want) || len(res.Peers) > 0 || !(res.Ours.Nanos > 0) {
			t.Errorf("%s: measured beside %q and %d peers, want %q and none", res.Name, got, len(res.Peers), want)
		}
	}
	checkRuleTables(t, r)
}

func checkRuleTables(t *testing.T, r Report) {
	t.Helper()
	var text, document strings.Builder
	r.WriteText(&text)
	if err := r.WriteMarkdown(&document); err != nil {
		t.Fatal(err)
	}
	for _, tab := range []*table{r.Rules.table(), r.Rules.view().Every} {
		for _, line := range tab.rows {
			if len(line) != len(tab.columns) || slices.Contains(line, "") {
				t.Errorf("the line %q has empty cells, or not %d", line, len(tab.columns))
			}
		}
	}
	if n := len(r.Rules.table().rows); n != len(r.Rules.Results) {
		t.Errorf("a table of %d lines for %d results", n, len(r.Rules.Results))
	}
	for i := range r.Rules.Results {
		if how := r.Rules.Results[i].How; !strings.Contains(document.String(), how) {
			t.Errorf("the document does not say %q", how)
		}
	}
	if !strings.Contains(document.String(), "\n## Rules\n") || !strings.Contains(text.String(), "\nRules: ") {
		t.Error("the rules are not shown")
	}
}

// TestRuleTableFitsTheTerminal writes numbers that take as much room as they may.
func TestRuleTableFitsTheTerminal(t *testing.T) {
	var r RulesReport
	for _, row := range ruleRows() {
		res := RuleResult{Request: row.request(), Rules: row.rules}
		res.Goroutines, res.Ours = row.goroutines, Figure{Nanos: 12345, Spread: 0.99, Allocs: 12.5}
		for _, by := range []string{"3 Takes", byStep, byFewRules} {
			res.Floors = append(res.Floors, Comparison{Figure: Figure{By: by, Nanos: 12345}, Ratio: 12.34})
		}
		r.Results = append(r.Results, res)
	}
	var b strings.Builder
	r.table().writeText(&b)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestRuleGoals judges known numbers.
func TestRuleGoals(t *testing.T) {
	result := func(nanos, allocs, ratio float64) RulesReport {
		row := RuleResult{Rules: manyRules, Limits: 3}
		row.Name, row.Goroutines, row.Ours = "3 limits, 10k rules", 1, Figure{Nanos: nanos, Allocs: allocs}
		row.Most = ThreeLimitsTarget
		row.Floors = []Comparison{
			{Figure{By: "3 Takes"}, 9, 0, 0, true}, {Figure{By: byFewRules}, ratio, 0, RulesTarget, ratio <= RulesTarget},
		}
		two := row
		two.Goroutines, two.Floors, two.Most = 2, nil, 0
		cel := RuleResult{Limits: 1, Expressions: true}
		cel.Name, cel.Ours = "1 limit, CEL, 10 rules", Figure{Nanos: 5000, Allocs: allocs}
		return RulesReport{[]RuleResult{row, two, cel}}
	}
	for _, c := range []struct {
		nanos, allocs, ratio float64
		met                  bool
	}{{750, 0.01, 2, true}, {751, 1, 2.01, false}} {
		goals := Report{Rules: result(c.nanos, c.allocs, c.ratio)}.Goals()
		if len(goals) != 5 {
			t.Errorf("%d goals: %+v", len(goals), goals)
		}
		for _, g := range goals {
			if g.Met != c.met {
				t.Errorf("%s: %s is met: %v", g.Name, g.Found, g.Met)
			}
		}
	}
}

// TestRuleRowsHaveNames makes sure that "rules" chooses all rows of the rule engine, and no others.
func TestRuleRowsHaveNames(t *testing.T) {
	rules, seen := regexp.MustCompile("rules"), map[string]bool{}
	for _, name := range Names() {
		if rules.MatchString(name) {
			if !strings.HasPrefix(name, "rules, ") || seen[name] {
				t.Errorf("a row is called %q, perhaps not alone", name)
			}
			seen[name] = true
		}
	}
	if len(seen) != len(ruleRows()) {
		t.Errorf("%d rows, want %d", len(seen), len(ruleRows()))
	}
}
