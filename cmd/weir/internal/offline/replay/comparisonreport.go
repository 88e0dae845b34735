package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/policy"
)

// comparisonReport is what a replay through configurations found, in the form of --json.
type comparisonReport struct {
	Config   string `json:"config"`
	Against  string `json:"against,omitempty"`
	replayed        //nolint:embeddedstructfieldcheck // it follows what it is about, as in JSON

	// Notes say what the log does not tell.
	Notes []string `json:"notes"`
	// All is what became of all requests, and Policies what each policy did.
	All      subject   `json:"all"`
	Policies []subject `json:"policies"`
	// TimelineStart is when the first step of each timeline begins, and TimelineStep how many seconds a step is long.
	TimelineStart *time.Time `json:"timeline_start"`
	TimelineStep  float64    `json:"timeline_step"`

	c   *comparison
	top int
}

// subject is a policy, or all requests.
type subject struct {
	Name string `json:"name,omitempty"`
	// Config and Against are what the two configurations did. They are nil where there is no such policy.
	Config  *verdicts `json:"config,omitempty"`
	Against *verdicts `json:"against,omitempty"`
	// Change is nil without --against.
	Change *change `json:"change,omitempty"`

	number int // of the policy, -1 for all requests
}

// verdicts are what a configuration did.
type verdicts struct {
	Mode     policy.Mode `json:"mode"`
	Requests int64       `json:"requests"`
	Allowed  int64       `json:"allowed"`
	Refused  int64       `json:"refused"`
	// Denied counts requests that a rule has denied, which are among those refused, Exempt those that a rule has freed, Unlimited
	// those that no policy held for, in shadow neither. They are those of all requests.
	Denied    int64 `json:"denied,omitempty"`
	Exempt    int64 `json:"exempt,omitempty"`
	Unlimited int64 `json:"unlimited,omitempty"`
	// RefusedKeys are those that were refused most.
	RefusedKeys []countedKey `json:"refused_keys,omitempty"`
	// Difference is that of the candidate of the policy, or of a policy in shadow.
	Difference *policy.Difference `json:"difference,omitempty"`
	Timeline   *verdictTimes      `json:"timeline,omitempty"`
}

type verdictTimes struct {
	Allowed []int64 `json:"allowed"`
	Refused []int64 `json:"refused"`
}

// change is what the second configuration would change.
type change struct {
	NewlyRefused      int64        `json:"newly_refused"`
	NewlyAdmitted     int64        `json:"newly_allowed"`
	NewlyRefusedKeys  []countedKey `json:"newly_refused_keys,omitempty"`
	NewlyAdmittedKeys []countedKey `json:"newly_allowed_keys,omitempty"`
}

type countedKey struct {
	Key   string `json:"key"`
	Count int64  `json:"count"`
}

func countedKeys(t *tally, n int) []countedKey {
	top := t.top(n)
	keys := make([]countedKey, 0, len(top))
	for _, k := range top {
		keys = append(keys, countedKey{valid(k.key), k.counts})
	}
	return keys
}

// compared is the report on configurations.
func (c *comparison) compared(top int) *comparisonReport {
	r := &comparisonReport{
		Config: c.configurations[0].name, replayed: c.replayed(), Notes: c.notes(), Policies: []subject{}, c: c, top: top,
	}
	if len(c.configurations) > 1 {
		r.Against = c.configurations[1].name
	}
	r.All = c.subject("", -1, top)
	for number, name := range c.policies {
		r.Policies = append(r.Policies, c.subject(name, number, top))
	}
	courses := c.courses(timelineSteps)
	if len(courses) == 0 {
		return r
	}
	start := at(courses[0].start)
	r.TimelineStart, r.TimelineStep = &start, courses[0].width.Seconds()
	for _, s := range append([]subject{r.All}, r.Policies...) {
		for i, v := range s.both() {
			if v != nil && v.Mode == policy.ModeEnforce {
				v.Timeline = courses[i].times(s.number)
			}
		}
	}
	return r
}

// courses are the histories of all configurations, whose steps are the same.
func (c *comparison) courses(most int) []course {
	all := make([]course, 0, len(c.trials))
	for _, t := range c.trials {
		all = append(all, t.history.fit(len(c.policies)+1, most))
	}
	return all
}

// counts are the requests of a policy and how many of them were refused, or with -1 those of all.
func (c course) counts(number int) (requests, refused []int64) {
	for _, s := range c.series[number+1] {
		requests, refused = append(requests, s.requests), append(refused, s.refused)
	}
	return requests, refused
}

// times are the counts in the form of a report.
func (c course) times(number int) *verdictTimes {
	allowed, refused := c.counts(number)
	for i, n := range refused {
		allowed[i] -= n
	}
	return &verdictTimes{allowed, refused}
}

// both are what the two configurations did.
func (s subject) both() []*verdicts { return []*verdicts{s.Config, s.Against} }

func (c *comparison) subject(name string, number, top int) subject {
	s := subject{Name: name, number: number}
	s.Config = c.verdicts(0, name, number, top)
	if len(c.configurations) < 2 {
		return s
	}
	s.Against = c.verdicts(1, name, number, top)
	s.Change = &change{}
	switch d := c.difference; {
	case d == nil:
	case number < 0:
		s.Change.NewlyRefused, s.Change.NewlyAdmitted = d.newlyRefused, d.newlyAdmitted
	default:
		p := &d.policies[number]
		*s.Change = change{
			p.newlyRefused, p.newlyAdmitted, countedKeys(&p.refusedKeys, top), countedKeys(&p.admittedKeys, top),
		}
	}
	return s
}

// verdicts returns what a configuration did, nil if it has no such policy.
func (c *comparison) verdicts(which int, name string, number, top int) *verdicts {
	v := &verdicts{}
	if number >= 0 {
		set := c.configurations[which].set
		i := slices.IndexFunc(set.Policies, func(p policy.Policy) bool { return p.Name == name })
		if i < 0 {
			return nil
		}
		v.Mode = set.Policies[i].Mode
	}
	if which >= len(c.trials) {
		return v
	}
	t := c.trials[which]
	if number < 0 {
		v.Requests, v.Allowed, v.Refused = t.total.requests, t.total.requests-t.total.refused, t.total.refused
		v.Denied, v.Exempt, v.Unlimited = t.total.denied, t.total.exempt, int64(t.report.Unlimited)
		return v
	}
	of := t.counts[number]
	v.Requests, v.Allowed, v.Refused = of.requests, of.requests-of.refused, of.refused
	v.RefusedKeys = countedKeys(&t.refused[number], top)
	for i := range t.report.Policies {
		p := &t.report.Policies[i]
		if p.Name != name {
			continue
		}
		v.Difference = p.Difference
		if v.Mode == policy.ModeShadow || v.Mode == policy.ModeTag { // verdicts do not have these
			v.Requests, v.Allowed, v.Refused = int64(p.Allowed+p.Refused), int64(p.Allowed), int64(p.Refused)
		}
	}
	return v
}

// notes say what the log does not tell.
func (c *comparison) notes() []string {
	notes := []string{}
	for _, one := range c.configurations {
		name := ""
		if len(c.configurations) > 1 {
			name = one.name
		}
		notes = append(notes, notesOf(one.set, name)...)
		if c.begun && !c.withHost && looksAtHost(one.set) {
			if name != "" {
				name += ": "
			}
			notes = append(notes, name+"hosts are looked at, which this log does not have: rules for a host never match")
		}
	}
	if c.unnamed > 0 {
		notes = append(notes, plural(c.unnamed, "request")+
			" came from a client whose address the log does not tell: they count as one client")
	}
	return notes
}

// busiest are the policies that were asked at all, those with the most refusals first, at most that many.
func (r *comparisonReport) busiest(most int) []subject {
	var policies []subject
	refusals := func(s subject) (n int64) {
		for _, v := range s.both() {
			if v != nil && v.Mode == policy.ModeEnforce {
				n += v.Refused
			}
		}
		return n
	}
	for _, s := range r.Policies {
		for _, v := range s.both() {
			if v != nil && v.Mode == policy.ModeEnforce && v.Requests > 0 {
				policies = append(policies, s)
				break
			}
		}
	}
	slices.SortStableFunc(policies, func(a, b subject) int { return cmp.Compare(refusals(b), refusals(a)) })
	return policies[:min(most, len(policies))]
}
