package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy/match"
	"github.com/weirhq/weir/store"
)

const (
	mostLimits      = 8
	mostKeyLimits   = 1 << 16
	longestName     = 128
	longestLimit    = 64
	mostRefusals    = 65535
	leastWait       = time.Millisecond
	mostWait        = time.Hour
	defaultWait     = time.Second
	mostWithin      = 24 * time.Hour
	mostLockout     = 3660 * 24 * time.Hour
	acceptedName    = "from 1 to 128 printable ASCII characters except \"/\", and different from all others"
	acceptedRule    = "from 1 to 128 printable ASCII characters, and different from all others"
	acceptedLimit   = "from 1 to 64 printable ASCII characters except \"/\", and different from the other limits of the policy"
	acceptedVariant = "as many limits as Limits, with the same names and algorithms"
)

// Check returns all that is wrong with a set, nil if nothing is: then an engine can be made of it. The error is an
// [errors.Join] of *[weir.OptionError].
func (s *Set) Check() error {
	_, err := compile(s)
	return err
}

// checker collects what is wrong with a set.
type checker struct{ errs []error }

func (c *checker) refuse(option, value, accepted string) {
	c.errs = append(c.errs, &weir.OptionError{Option: option, Value: value, Accepted: accepted})
}

func (c *checker) add(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// refuseForm refuses the value of an option that package match does not accept.
func (c *checker) refuseForm(option string, err error) {
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		c.refuse(option, wrong.Value, wrong.Accepted)
	}
}

func isName(s string, longest int, slash bool) bool {
	if s == "" || len(s) > longest {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '/' && !slash {
			return false
		}
	}
	return true
}

// program is a set that was checked and completed.
type program struct {
	set      *Set
	policies map[string]int
	rules    map[string]int
	index    *match.Index
	uses     []*[]use // of each rule
}

// use is a Use whose policy was looked up.
type use struct {
	policy int
	key    Text
	cost   Number
}

// compile checks a set. What it returns refers to a copy of it, in which limits have names.
func compile(s *Set) (*program, error) {
	if s == nil {
		return nil, &weir.OptionError{Option: "Set", Value: "nil", Accepted: "a set"}
	}
	c := new(checker)
	p := &program{
		set:      &Set{Policies: slices.Clone(s.Policies), Rules: slices.Clone(s.Rules), Extra: s.Extra},
		policies: make(map[string]int, len(s.Policies)),
	}
	for i := range p.set.Policies {
		policy := &p.set.Policies[i]
		if o := policy.Lockout; o != nil {
			own := *o
			policy.Lockout = &own
		}
		at := fmt.Sprintf("policy %q", policy.Name)
		_, twice := p.policies[policy.Name]
		if twice || !isName(policy.Name, longestName, false) {
			c.refuse(fmt.Sprintf("Policies[%d].Name", i), strconv.Quote(policy.Name), acceptedName)
		}
		if !twice {
			p.policies[policy.Name] = i
		}
		c.policy(at, policy)
	}
	for i := range p.set.Policies {
		c.parent(p, i)
	}
	p.rules = make(map[string]int, len(s.Rules))
	p.uses = make([]*[]use, len(s.Rules))
	usual := map[string]*[]use{}
	for i := range p.set.Rules {
		rule := &p.set.Rules[i]
		rule.Limits, rule.Match = slices.Clone(rule.Limits), rule.Match.clone()
		if _, twice := p.rules[rule.Name]; twice || !isName(rule.Name, longestName, true) {
			c.refuse(fmt.Sprintf("Rules[%d].Name", i), strconv.Quote(rule.Name), acceptedRule)
		}
		p.rules[rule.Name] = i
		c.effect(fmt.Sprintf("rule %q: ", rule.Name), rule)
		uses := make([]use, len(rule.Limits))
		for j := range rule.Limits {
			u := &rule.Limits[j]
			policy, ok := p.policies[u.Policy]
			if !ok {
				c.refuse(fmt.Sprintf("rule %q: Limits[%d].Policy", rule.Name, j), strconv.Quote(u.Policy), "the name of a policy")
			}
			uses[j] = use{policy, u.Key, u.Cost}
		}
		p.uses[i] = alikeUses(&uses, usual)
	}
	rules := make([]match.Conditions, len(p.set.Rules))
	for i := range p.set.Rules {
		c.match(&p.set.Rules[i], &rules[i])
	}
	p.index = match.NewIndex(rules)
	return p, errors.Join(c.errs...)
}

// alikeUses returns what the first rule had that applies the same policies, if they have their own keys and costs: thousands of
// rules then have few different uses, which are at hand.
func alikeUses(uses *[]use, known map[string]*[]use) *[]use {
	var policies []byte
	for _, u := range *uses {
		if u.key != nil || u.cost != nil {
			return uses
		}
		policies = binary.AppendUvarint(policies, uint64(u.policy))
	}
	if first, ok := known[string(policies)]; ok {
		return first
	}
	known[string(policies)] = uses
	return uses
}

// match adds the conditions of a rule to those of the index.
func (c *checker) match(rule *Rule, to *match.Conditions) {
	m, at := &rule.Match, fmt.Sprintf("rule %q: Match.", rule.Name)
	for _, of := range []struct {
		kind   match.Kind
		name   string
		values []string
	}{
		{match.Method, "Methods", m.Methods},
		{match.Host, "Hosts", m.Hosts},
		{match.Path, "Paths", m.Paths},
		{match.Route, "Routes", m.Routes},
		{match.Protocol, "Protocols", m.Protocols},
	} {
		for i, value := range of.values {
			c.refuseForm(fmt.Sprintf("%s%s[%d]", at, of.name, i), to.Add(of.kind, value))
		}
	}
	for i, h := range m.Headers {
		if wrong, ok := errors.AsType[*weir.OptionError](to.AddHeader(h.Name, h.Value, h.Absent)); ok {
			c.refuse(fmt.Sprintf("%sHeaders[%d].%s", at, i, wrong.Option), wrong.Value, wrong.Accepted)
		}
	}
	for i, network := range m.Clients {
		c.refuseForm(fmt.Sprintf("%sClients[%d]", at, i), to.AddClient(network))
	}
}

// effect checks what a rule does that applies no limits.
func (c *checker) effect(at string, r *Rule) {
	if r.Exempt && len(r.Limits) > 0 {
		c.refuse(at+"Limits", fmt.Sprintf("%d of them", len(r.Limits)), "none, as the rule is Exempt")
	}
	switch {
	case r.Mode >= modes || r.Mode == ModeTag:
		c.refuse(at+"Mode", r.Mode.String(), "enforce, shadow or off")
	case r.Mode != ModeEnforce && !r.Deny:
		c.refuse(at+"Mode", r.Mode.String(), "enforce, as the rule does not Deny: policies have modes of their own")
	}
	if !r.Deny {
		return
	}
	if len(r.Limits) > 0 {
		c.refuse(at+"Limits", fmt.Sprintf("%d of them", len(r.Limits)), "none, as the rule denies")
	}
	for _, other := range []struct {
		name string
		set  bool
	}{{"Exempt", r.Exempt}, {"Final", r.Final}, {"Afterwards", r.Afterwards}} {
		if other.set {
			c.refuse(at+other.name, "true", "false, as the rule denies")
		}
	}
}

// clone is m with slices of its own.
func (m Match) clone() Match {
	m.Methods, m.Hosts, m.Paths = slices.Clone(m.Methods), slices.Clone(m.Hosts), slices.Clone(m.Paths)
	m.Headers, m.Clients = slices.Clone(m.Headers), slices.Clone(m.Clients)
	m.Routes, m.Protocols = slices.Clone(m.Routes), slices.Clone(m.Protocols)
	return m
}

// policy checks a policy, and gives its limits names.
func (c *checker) policy(at string, p *Policy) {
	if p.Mode >= modes {
		c.refuse(at+": Mode", p.Mode.String(), "enforce, shadow, tag or off")
	}
	if p.Fail >= fails {
		c.refuse(at+": Fail", p.Fail.String(), "closed, open or local")
	}
	c.policyLimits(at, p)
	c.consistency(at, p)
	c.durability(at, p)
	for _, b := range [...]keyset.Bounds{{QueueLimit: p.QueueLimit}, {MaxKeys: p.MaxKeys}} { // of both it would name only one
		if err := b.Check(); err != nil {
			c.add(fmt.Errorf("%s: %w", at, err))
		}
	}
	if p.MaxWait != 0 && (p.MaxWait < leastWait || p.MaxWait > mostWait) {
		c.refuse(at+": MaxWait", p.MaxWait.String(), "from 1ms to 1h, or 0 for 1s")
	}
	if p.MaxWait != 0 && p.QueueLimit == 0 {
		c.refuse(at+": MaxWait", p.MaxWait.String(), "0, as QueueLimit is 0 and no request waits")
	}
	if p.Priority < overload.PriorityBackground || p.Priority > overload.PriorityCritical {
		c.refuse(at+": Priority", p.Priority.String(), "background, sheddable, normal or critical")
	}
	c.lockout(at, p.Lockout)
}

// policyLimits checks all limits that a policy has, and gives them names.
func (c *checker) policyLimits(at string, p *Policy) {
	if len(p.Limits) > mostLimits || len(p.Limits) == 0 && p.Mode != ModeOff {
		c.refuse(at+": Limits", fmt.Sprintf("%d of them", len(p.Limits)), "from 1 to 8")
	}
	p.Limits = c.limits(at+": Limits", p.Limits)
	if len(p.Candidate) > mostLimits {
		c.refuse(at+": Candidate", fmt.Sprintf("%d of them", len(p.Candidate)), "from 1 to 8")
	}
	if len(p.Candidate) > 0 && p.Mode.watches() {
		c.refuse(at+": Candidate", "given", "none, as the policy itself refuses nothing")
	}
	p.Candidate = c.limits(at+": Candidate", p.Candidate)
	if len(p.Tiers) > 0 && p.TierBy == nil {
		c.refuse(at+": TierBy", "nil", "what chooses one of Tiers")
	}
	if p.TierBy != nil && len(p.Tiers) == 0 {
		c.refuse(at+": Tiers", "none", "those that TierBy chooses from")
	}
	if p.LimitBy != nil && len(p.Limits) > 1 {
		c.refuse(at+": Limits", fmt.Sprintf("%d of them", len(p.Limits)), "1, as LimitBy returns one limit")
	}
	if p.LimitBy != nil && p.TierBy != nil {
		c.refuse(at+": TierBy", p.TierBy.String(), "nil, as LimitBy chooses the limit")
	}
	p.Tiers = c.variants(at+": Tiers", p.Limits, p.Tiers)
	p.Keys = c.variants(at+": Keys", p.Limits, p.Keys)
	if len(p.Keys)+len(p.Tiers) > mostKeyLimits {
		c.refuse(at+": Keys", strconv.Itoa(len(p.Keys)), "at most 65536, the tiers included")
	}
}

func (c *checker) lockout(at string, o *Lockout) {
	if o == nil {
		return
	}
	if o.Refusals < 1 || o.Refusals > mostRefusals {
		c.refuse(at+": Lockout.Refusals", strconv.Itoa(o.Refusals), "from 1 to 65535")
	}
	if o.Within < time.Millisecond || o.Within > mostWithin {
		c.refuse(at+": Lockout.Within", o.Within.String(), "from 1ms to 24h")
	}
	if o.For < time.Millisecond || o.For > mostLockout {
		c.refuse(at+": Lockout.For", o.For.String(), "from 1ms to 3660 days")
	}
}

// limits checks limits, and returns them with names.
func (c *checker) limits(at string, all []Limit) []Limit {
	all = slices.Clone(all)
	names := make(map[string]bool, len(all))
	for i := range all {
		if l := &all[i]; l.Name != "" {
			if names[l.Name] || !isName(l.Name, longestLimit, false) {
				c.refuse(fmt.Sprintf("%s[%d].Name", at, i), strconv.Quote(l.Name), acceptedLimit)
			}
			names[l.Name] = true
		}
	}
	for i, name := range LimitNames(all) {
		if err := all[i].Check(); err != nil {
			c.add(fmt.Errorf("%s[%d]: %w", at, i, err))
		}
		all[i].Name = name
	}
	return all
}

// LimitNames returns the names of the limits of a policy, with those that the engine gives to limits without one: the window, or
// the algorithm, and a number where that is not the first.
func LimitNames(all []Limit) []string {
	names, taken := make([]string, len(all)), make(map[string]bool, len(all))
	for i := range all {
		names[i] = all[i].Name
		taken[names[i]] = true
	}
	for i, name := range names {
		if name != "" {
			continue
		}
		usual := defaultName(all[i].Limit)
		name = usual
		for n := 2; taken[name]; n++ {
			name = usual + "-" + strconv.Itoa(n)
		}
		names[i], taken[name] = name, true
	}
	return names
}

// variants checks limits that take the place of others.
func (c *checker) variants(at string, of []Limit, all map[string][]Limit) map[string][]Limit {
	if len(all) == 0 {
		return nil
	}
	named := make(map[string][]Limit, len(all))
	for name, limits := range all {
		where := fmt.Sprintf("%s[%q]", at, name)
		limits = slices.Clone(limits)
		if len(limits) != len(of) {
			c.refuse(where, fmt.Sprintf("%d of them", len(limits)), acceptedVariant)
			continue
		}
		for i := range limits {
			l := &limits[i]
			if err := l.Check(); err != nil {
				c.add(fmt.Errorf("%s[%d]: %w", where, i, err))
				continue
			}
			if l.Name != "" && l.Name != of[i].Name || !alike(l.Limit, of[i].Limit) {
				c.refuse(fmt.Sprintf("%s[%d]", where, i), strings.TrimSpace(l.Name+" "+l.String()), acceptedVariant)
			}
			l.Name = of[i].Name
		}
		named[name] = limits
	}
	return named
}

// alike reports whether a state of one limit can be held to the other.
func alike(a, b weir.Limit) bool {
	return a.Algorithm() == b.Algorithm() && (a.Algorithm() != weir.AlgorithmSlidingWindow || segments(a) == segments(b))
}

func segments(l weir.Limit) int {
	if l.Segments() == 0 {
		return defaultSegments
	}
	return l.Segments()
}

const defaultSegments = 10

// defaultName is the window of a limit, or what stands for it.
func defaultName(l weir.Limit) string {
	switch {
	case l.Algorithm() == weir.AlgorithmCalendarWindow:
		return l.Calendar().Unit.String()
	case l.Algorithm() == weir.AlgorithmConcurrency || l.Rate().Period == 0:
		return l.Algorithm().String()
	}
	return shortDuration(l.Rate().Period)
}

// shortDuration is d in the largest unit of which it is a multiple.
func shortDuration(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d >= unit.of && d%unit.of == 0 {
			return strconv.FormatInt(int64(d/unit.of), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// parent looks for the parent of a policy, and for a ring of parents.
func (c *checker) parent(p *program, i int) {
	policy := &p.set.Policies[i]
	at := fmt.Sprintf("policy %q: Parent", policy.Name)
	next := policy.Parent
	for steps := 0; next != ""; steps++ {
		at2, ok := p.policies[next]
		switch {
		case !ok && steps == 0:
			c.refuse(at, strconv.Quote(next), "the name of a policy")
			return
		case !ok: // it is refused where it stands
			return
		case at2 == i:
			c.refuse(at, strconv.Quote(policy.Parent), "a policy of which this one is not a parent itself")
			return
		case steps > len(p.set.Policies):
			return // a ring of others
		}
		next = p.set.Policies[at2].Parent
	}
}

// mostCost is the largest cost of a request.
const mostCost = algo.MaxPermits

// consistency checks what a policy says about sharing its limits.
func (c *checker) consistency(at string, p *Policy) {
	if p.Consistency >= consistencies {
		c.refuse(at+": Consistency", p.Consistency.String(), "local, coherent, leased or optimistic")
		return
	}
	if !p.Consistency.Shared() {
		if p.Durability != DurabilityMemory {
			return
		}
		if p.Fail == FailLocal {
			c.refuse(at+": Fail", p.Fail.String(), "closed or open, as Consistency is local")
		}
		if p.Hold != 0 {
			c.refuse(at+": Hold", p.Hold.String(), "0, as Consistency is local and no store keeps anything")
		}
		return
	}
	if p.QueueLimit != 0 {
		c.refuse(at+": QueueLimit", strconv.FormatInt(p.QueueLimit, 10),
			fmt.Sprintf("0, as Consistency is %v: a shared limit has no queue, and tells when to come back", p.Consistency))
	}
	if p.AdmitWhenFull {
		c.refuse(at+": AdmitWhenFull", "true",
			fmt.Sprintf("false, as Consistency is %v: the store bounds its keys", p.Consistency))
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Algorithm() == weir.AlgorithmConcurrency && p.Consistency != ConsistencyCoherent {
			c.refuse(at+": Consistency", p.Consistency.String(), fmt.Sprintf(
				"coherent or local, as its limit %q is one of concurrency, which can neither be leased nor told later", l.Name))
		}
	}
	c.kept(at, p)
}

// durability checks what a policy says about what its limits survive.
func (c *checker) durability(at string, p *Policy) {
	cluster := ", as Durability is " + p.Durability.String()
	switch {
	case p.Durability >= durabilities:
		c.refuse(at+": Durability", p.Durability.String(), "memory, cluster or file")
		return
	case p.Durability == DurabilityMemory:
		return
	case p.Consistency.Shared():
		c.refuse(at+": Consistency", p.Consistency.String(), "local"+cluster+": its limits have one owner, and no store")
		return
	}
	if p.Fail == FailLocal {
		c.refuse(at+": Fail", p.Fail.String(), "closed or open"+cluster+": no process allows anything without the owner")
	}
	if p.NewestFirst {
		c.refuse(at+": NewestFirst", "true", "false"+cluster+": the owner serves in the order of arrival")
	}
	if p.AdmitWhenFull {
		c.refuse(at+": AdmitWhenFull", "true", "false"+cluster+": the owner bounds its keys")
	}
	c.kept(at, p)
}

// kept checks what a policy says whose limits are kept for several processes.
func (c *checker) kept(at string, p *Policy) {
	if p.Hold != 0 && (p.Hold < store.LeastExpiry || p.Hold > store.MostExpiry) {
		c.refuse(at+": Hold", p.Hold.String(), "from 1ms to 24h, or 0 for 1m")
	}
	c.stored(at+": Limits", p.Limits)
	for _, name := range sortedKeys(p.Tiers) {
		c.stored(fmt.Sprintf("%s: Tiers[%q]", at, name), p.Tiers[name])
	}
	for _, name := range sortedKeys(p.Keys) {
		c.stored(fmt.Sprintf("%s: Keys[%q]", at, name), p.Keys[name])
	}
}

// stored checks whether a store can keep limits that are right otherwise.
func (c *checker) stored(at string, limits []Limit) {
	for i := range limits {
		if limits[i].Check() != nil {
			continue
		}
		if err := storable(limits[i].Limit); err != nil {
			c.add(fmt.Errorf("%s[%d]: %w", at, i, err))
		}
	}
}

// storable says why a store cannot keep a limit that is right otherwise.
func storable(l weir.Limit) error {
	return store.Check(store.Ask{Mode: store.ModeRefund}, []store.Charge{{Policy: "p", Limit: l}}, nil)
}
