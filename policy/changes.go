package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/overload"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// field is something that a set says.
type field struct {
	path, value string
	policy      string // that it is about, if any
	limit       string // that it is, if it is one of Limits or Candidate
	candidate   bool
	where       bool // it says where the limits are kept
}

// compare returns what has changed from one set to the next.
func compare(old, now *snapshot) []Change {
	was, is := describeSet(old.set), describeSet(now.set)
	fields := make(map[string]*field, len(was)+len(is))
	for _, all := range [][]field{was, is} {
		for i := range all {
			fields[all[i].path] = &all[i]
		}
	}
	changes := compareFields(was, is)
	for i := range changes {
		changes[i].State = becomes(old, now, fields[changes[i].Path])
	}
	changes = append(changes, renamed(old, now)...)
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return changes
}

// renamed are limits that are stored under another name, though they have not changed: the only limit of a policy has the name of
// that, and those of one with several have their own.
func renamed(old, now *snapshot) (changes []Change) {
	for i := range now.live {
		is := &now.live[i]
		was := old.policy(is.Name)
		if was == nil || was.shared != is.shared || was.durable != is.durable {
			continue
		}
		for j := range is.Limits {
			l := &is.Limits[j]
			k := slices.IndexFunc(was.Limits, func(o Limit) bool { return o.Name == l.Name && o.String() == l.String() })
			if !is.shared || k < 0 || was.limits[k].name == is.limits[j].name {
				continue
			}
			changes = append(changes, Change{
				Path: "policies." + is.Name + ".limits." + l.Name, Old: "stored as " + was.limits[k].name,
				New: "stored as " + is.limits[j].name, State: stateAsStored,
			})
		}
	}
	return changes
}

// What becomes of the state of keys. What is stored outside of the process stays there, and goes on under its name.
const (
	stateKept       = "kept"
	stateAnew       = "begins anew"
	stateForgotten  = "forgotten"
	stateAsStored   = "as stored"
	stateStaysThere = "stays stored"
)

// becomes tells what becomes of the state of keys by a change.
func becomes(old, now *snapshot, f *field) string {
	was, is := old.policy(f.policy), now.policy(f.policy)
	switch {
	case f.limit != "":
		return becomesOf(statesOf(was, f.candidate), statesOf(is, f.candidate), f.limit)
	case f.policy == "" || was == nil:
		return ""
	case is == nil && f.where:
		return ""
	case is == nil && was.shared:
		return stateStaysThere
	case is == nil:
		return stateForgotten
	case !f.where:
		return ""
	case was.shared == is.shared && was.durable == is.durable:
		return stateKept
	case is.shared:
		return stateAsStored
	default:
		return stateAnew
	}
}

// statesOf are those of the limits of a policy, or of its candidates.
func statesOf(p *livePolicy, candidate bool) map[string]*limitState {
	switch {
	case p == nil:
		return nil
	case candidate:
		return p.state.candidates
	default:
		return p.state.limits
	}
}

// becomesOf tells what becomes of the state of a limit, where there were some states before and are others after.
func becomesOf(before, after map[string]*limitState, limit string) string {
	was, is := before[limit], after[limit]
	switch {
	case is != nil && holds(before, func(s *limitState) bool { return s == is }):
		return stateKept
	case is != nil && len(before) == 0:
		return ""
	case is != nil && is.stored != "" && !holds(before, func(s *limitState) bool { return s.stored == is.stored }):
		return stateAsStored
	case is != nil:
		return stateAnew
	case was == nil:
		return ""
	case holds(after, func(s *limitState) bool { return s == was }):
		return stateKept
	case was.stored != "" && !holds(after, func(s *limitState) bool { return s.stored == was.stored }):
		return stateStaysThere
	default:
		return stateForgotten
	}
}

// holds reports whether one of some states is such.
func holds(states map[string]*limitState, such func(*limitState) bool) bool {
	for _, s := range states {
		if such(s) {
			return true
		}
	}
	return false
}

func compareFields(old, now []field) []Change {
	was := make(map[string]string, len(old))
	for _, f := range old {
		was[f.path] = f.value
	}
	is := make(map[string]bool, len(now))
	var changes []Change
	for _, f := range now {
		is[f.path] = true
		if v, ok := was[f.path]; !ok || v != f.value {
			changes = append(changes, Change{Path: f.path, Old: v, New: f.value})
		}
	}
	for _, f := range old {
		if !is[f.path] {
			changes = append(changes, Change{Path: f.path, Old: f.value})
		}
	}
	return changes
}

// describeSet lists all that a set says. What has its default is left out.
func describeSet(s *Set) (all []field) {
	for i := range s.Policies {
		all = describePolicy(all, &s.Policies[i])
	}
	for i := range s.Rules {
		all = describeRule(all, &s.Rules[i], i)
	}
	return all
}

func describePolicy(all []field, p *Policy) []field {
	at := "policies." + p.Name
	add := func(name, value string, isDefault bool) {
		if !isDefault {
			all = append(all, field{path: at + "." + name, value: value})
		}
	}
	addAll := func(at string, of []Limit) {
		for i := range of {
			add(at+"."+of[i].Name, of[i].String(), false)
		}
	}
	own := func(at string, of []Limit, candidate bool) {
		first := len(all)
		addAll(at, of)
		for i := range of {
			f := &all[first+i]
			f.policy, f.limit, f.candidate = p.Name, of[i].Name, candidate
		}
	}
	all = append(all, field{path: at, value: "policy", policy: p.Name})
	own("limits", p.Limits, false)
	own("candidate", p.Candidate, true)
	add("key", spelled(p.Key), p.Key == nil)
	add("cost", spelled(p.Cost), p.Cost == nil)
	add("mode", p.Mode.String(), p.Mode == ModeEnforce)
	add("tiers.by", spelled(p.TierBy), p.TierBy == nil)
	add("limit_by", spelled(p.LimitBy), p.LimitBy == nil)
	for _, name := range sortedKeys(p.Tiers) {
		addAll("tiers."+name, p.Tiers[name])
	}
	for _, name := range sortedKeys(p.Keys) {
		addAll("keys."+name, p.Keys[name])
	}
	add("parent", p.Parent, p.Parent == "")
	add("queue.limit", strconv.FormatInt(p.QueueLimit, 10), p.QueueLimit == 0)
	add("queue.order", limits.OrderText(p.NewestFirst), !p.NewestFirst)
	add("queue.max_wait", p.MaxWait.String(), p.MaxWait == 0)
	add("max_keys", strconv.Itoa(p.MaxKeys), p.MaxKeys == 0)
	add("when_full", limits.WhenFullText(p.AdmitWhenFull), !p.AdmitWhenFull)
	if o := p.Lockout; o != nil {
		row := ""
		if o.InARow {
			row = " in a row"
		}
		add("lockout", fmt.Sprintf("%d refusals%s within %v, for %v", o.Refusals, row, o.Within, o.For), false)
	}
	add("fail", p.Fail.String(), p.Fail == FailClosed)
	if p.Consistency != ConsistencyLocal {
		all = append(all, field{path: at + ".consistency", value: p.Consistency.String(), policy: p.Name, where: true})
	}
	if p.Durability != DurabilityMemory {
		all = append(all, field{path: at + ".durability", value: p.Durability.String(), policy: p.Name, where: true})
	}
	add("hold", p.Hold.String(), p.Hold == 0)
	add("priority", p.Priority.String(), p.Priority == overload.PriorityNormal)
	return all
}

func describeRule(all []field, r *Rule, place int) []field {
	at := "rules." + r.Name
	add := func(name, value string, isDefault bool) {
		if !isDefault {
			all = append(all, field{path: at + "." + name, value: value})
		}
	}
	list := func(name string, values []string) { add("match."+name, strings.Join(values, ", "), len(values) == 0) }
	all = append(all, field{path: at, value: "rule " + strconv.Itoa(place+1)})
	m := &r.Match
	list("method", m.Methods)
	list("host", m.Hosts)
	list("path", m.Paths)
	for i := range m.Headers {
		h := &m.Headers[i]
		value := h.Value
		if h.Absent {
			value = "absent"
		}
		add("match.header."+h.Name, value, false)
	}
	clients := make([]string, 0, len(m.Clients))
	for _, c := range m.Clients {
		clients = append(clients, c.String())
	}
	list("client", clients)
	list("route", m.Routes)
	list("protocol", m.Protocols)
	add("when", spelled(r.When), r.When == nil)
	uses := make([]string, 0, len(r.Limits))
	for i := range r.Limits {
		u := &r.Limits[i]
		text := u.Policy
		if u.Key != nil {
			text += " by " + u.Key.String()
		}
		if u.Cost != nil {
			text += " at " + u.Cost.String()
		}
		uses = append(uses, text)
	}
	add("limits", strings.Join(uses, "; "), len(uses) == 0)
	add("exempt", "true", !r.Exempt)
	add("deny", "true", !r.Deny)
	add("mode", r.Mode.String(), r.Mode == ModeEnforce)
	add("final", "true", !r.Final)
	add("charge", "afterwards", !r.Afterwards)
	return all
}

// spelled is an expression as the configuration writes it.
func spelled[E fmt.Stringer](e E) string {
	if any(e) == nil {
		return ""
	}
	return e.String()
}
