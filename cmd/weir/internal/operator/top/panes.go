package top

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// The panes, in the order of their keys.
const (
	policiesPane = iota
	keysPane
	lockoutsPane
	overridesPane
	refusalsPane
	numPanes
)

// column is one of a pane.
type column struct {
	head   string
	number bool // stands at the right, and is sorted by its number, the largest first
}

// pane is a list.
type pane struct {
	name    string
	columns []column
	sort    int                                                                         // by which column, -1 as the server says
	fetch   func(ctx context.Context, c *operator.Client, policy string) ([]row, error) // nil: the overview has its rows
	empty   string
}

// row is a line of a pane.
type row struct {
	id     string // by which it is found again when the list is another one
	policy string
	key    string
	known  bool // the key is
	cells  []cell
	alarm  bool
	// title and about are all that is known of it; about is nil if the server is asked for that.
	title string
	about func(w io.Writer)
}

type cell struct {
	text   string
	number float64
}

func paneNames() []string {
	names := make([]string, len(panes))
	for i := range panes {
		names[i] = panes[i].name
	}
	return names
}

const (
	// Heads of columns that are in several panes.
	policyHead = "policy"
	keyHead    = "key"
)

var panes = [numPanes]pane{
	policiesPane: {
		name: "policies",
		columns: []column{
			{policyHead, false},
			{"allowed/s", true},
			{"refused/s", true},
			{"queued", true},
			{"keys", true},
			{"locked out", true},
			{"mode", false},
			{"refused", true},
			{"allowed", true},
			{"limits", false},
		},
		sort: 2, empty: "no policies: no limit applies",
	},
	keysPane: {
		name: "keys",
		columns: []column{
			{keyHead, false},
			{"remaining", true},
			{"of", true},
			{"refused", true},
			{"queued", true},
			{"retry", true},
			{"locked out", true},
			{"override", false},
			{"limit", false},
		},
		sort: -1, fetch: fetched(operator.KeysPath, mostRows, keyRow), empty: "no keys are tracked",
	},
	lockoutsPane: {
		name:    "lockouts",
		columns: []column{{"for", true}, {policyHead, false}, {keyHead, false}},
		sort:    -1, fetch: fetched(operator.LockoutsPath, mostRows, lockoutRow),
		empty: "no key that is known by name is locked out by this server",
	},
	overridesPane: {
		name: "overrides",
		columns: []column{
			{"for", true},
			{policyHead, false},
			{keyHead, false},
			{"instead", false},
			{"by", false},
			{"why", false},
		},
		sort: -1, fetch: fetched(operator.OverridesPath, 0, overrideRow), empty: "no key is overridden",
	},
	refusalsPane: {
		name: "refusals",
		columns: []column{
			{"when", false},
			{"limit", false},
			{keyHead, false},
			{"retry", true},
			{"request", false},
			{"refusal", false},
		},
		sort: -1, fetch: refusals, empty: "nothing was refused",
	},
}

func text(s string) cell { return cell{text: terminal.Printable(s)} }

func count[T int | int64 | uint64](n T) cell { return cell{terminal.Number(n), float64(n)} }

// zero is a number that is not shown if it is 0.
func zero[T int | int64 | uint64](n T) cell {
	if n == 0 {
		return cell{"-", 0}
	}
	return count(n)
}

func rate(perSecond float64) cell { return cell{operator.Rate(perSecond), perSecond} }

// unknownRate is a rate that is not known.
func unknownRate(float64) cell { return cell{"-", -1} }

// seconds is a duration; never is the longest.
func seconds(s float64) cell {
	c := cell{operator.Seconds(s), s}
	if s < 0 {
		c.number = 1e18
	}
	return c
}

func policyRows(m *model) []row {
	if m.now == nil {
		return nil
	}
	return rowsOf(m.now.Policies, func(p *operator.Policy) row {
		r, known := m.rates[p.Name]
		counted := rate
		if !known {
			counted = unknownRate
		}
		return row{
			id: p.Name, policy: p.Name, alarm: p.Locked > 0 || r.refused > 0,
			title: "policy " + p.Name, about: func(w io.Writer) { operator.WritePolicy(w, terminal.Output{}, p) },
			cells: []cell{
				text(p.Name),
				counted(r.allowed),
				counted(r.refused),
				{operator.Queued(p), float64(p.Queued)},
				{operator.Tracked(p), float64(p.Keys)},
				count(p.Locked),
				text(operator.Mode(p)),
				count(p.Refused),
				count(p.Allowed),
				text(operator.LimitsText(p.Limits)),
			},
		}
	})
}

// How many rows are asked for.
const (
	mostRows     = 1000
	mostRefusals = 500
)

func keyRow(k *operator.Key) row {
	var l operator.KeyLimit
	if len(k.Limits) > 0 {
		l = k.Limits[0]
	}
	none := cell{"-", 0}
	remaining, of, retry, locked, override := count(l.Remaining), count(l.Limit), none, none, "-"
	if l.Holds == operator.Unlimited {
		remaining, of = none, none
	}
	if !l.Allowed && l.RetryAfter != 0 { // a concurrency limit knows none
		retry = seconds(l.RetryAfter)
	}
	if k.LockedFor != 0 {
		locked = seconds(k.LockedFor)
	}
	if k.Override != nil {
		override = operator.OverrideText(k.Override)
	}
	return row{
		id: k.ID + "\x00" + k.Key, policy: k.Policy, key: k.Key, known: k.Named || k.Key != "" || k.ID == "",
		alarm: k.LockedFor != 0 || !l.Allowed,
		cells: []cell{
			text(operator.KeyName(k)), remaining, of, zero(l.Refused), zero(l.Queued), retry, locked,
			text(override), text(strings.TrimSpace(l.Name + " " + l.Holds)),
		},
	}
}

func lockoutRow(l *operator.Lockout) row {
	return rowOfKey(l.Policy, l.Key, seconds(l.For), text(l.Policy), text(operator.ShownKey(l.Key)))
}

func overrideRow(o *operator.Override) row {
	return rowOfKey(o.Policy, o.Key, seconds(o.For), text(o.Policy), text(operator.ShownKey(o.Key)),
		text(operator.OverrideText(o)), text(o.By), text(o.Reason))
}

func rowOfKey(policy, key string, cells ...cell) row {
	return row{id: policy + "\x00" + key, policy: policy, key: key, known: true, cells: cells}
}

// refusals are the last ones.
func refusals(ctx context.Context, c *operator.Client, _ string) ([]row, error) {
	var all operator.Refusals
	err := c.Get(ctx, operator.RefusalsPath, url.Values{"n": {strconv.Itoa(mostRefusals)}}, &all)
	return rowsOf(all.Refusals, refusalRow), err
}

func refusalRow(r *operator.Refusal) row {
	line := row{
		id: r.ID, title: "refusal " + r.ID,
		about: func(w io.Writer) { operator.WriteRefusal(w, terminal.Output{}, r, time.Now()) },
		cells: []cell{
			text(r.Time.UTC().Format("15:04:05.000")), text("-"), text("-"), seconds(r.RetryAfter),
			text(operator.RequestLine(r)), text(r.ID),
		},
	}
	if l := operator.Binding(r); l != nil {
		line.policy, line.key, line.known = l.Policy, l.Key, true
		line.cells[1], line.cells[2] = text(operator.LimitName(l)), text(operator.ShownKey(l.Key))
	} else if r.DeniedBy != "" {
		line.cells[1] = text(operator.DeniedBy(r))
	}
	return line
}
