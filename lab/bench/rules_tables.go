package bench

import (
	"fmt"
	"strconv"
)

// table compares decisions with their floors and with those of another engine, a line each.
func (r RulesReport) table() *table {
	t := &table{columns: []column{
		text("request"), number("rules"), number("go"), number("weir"), number("±"), number("al"), text("floor"), number("ns"),
		number("ratio"), number(byStep), number("ratio"), text("beside"), number("ratio"),
	}}
	for i := range r.Results {
		row := &r.Results[i]
		cells := []string{
			row.Request, count(row.Rules), strconv.Itoa(row.Goroutines), nanos(row.Ours.Nanos), percent(row.Ours.Spread),
			each(row.Ours.Allocs), "-", "-", "-", "-", "-", "-", "-",
		}
		for _, f := range row.Floors {
			ratio := fmt.Sprintf("%.2f", f.Ratio)
			switch f.By {
			case byStep:
				cells[9], cells[10] = nanos(f.Nanos), ratio
			case byFewRules, byNoCEL:
				cells[11], cells[12] = f.By, ratio
			default:
				cells[6], cells[7], cells[8] = f.By, nanos(f.Nanos), ratio
			}
		}
		t.add(cells...)
	}
	return t
}

// rulesView is what the document shows of the rule engine. A table of what was not measured is nil.
type rulesView struct {
	Rows                 []RowResult
	Table, Every         *table
	Clients              int
	Target, Takes, Nanos int
}

func (r RulesReport) view() rulesView {
	v := rulesView{Rows: r.Rows(), Clients: ruleClients, Target: RulesTarget, Takes: TakesTarget, Nanos: ThreeLimitsTarget}
	if len(v.Rows) > 0 {
		v.Table, v.Every = r.table(), everyTable(v.Rows)
	}
	return v
}
