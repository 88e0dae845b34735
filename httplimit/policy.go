package httplimit

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir"
)

// Unit is what a quota counts.
type Unit string

// The units that the draft defines. Requests is the default, and is not written into the field.
const (
	Requests           Unit = "requests"
	ContentBytes       Unit = "content-bytes"
	ConcurrentRequests Unit = "concurrent-requests"
)

// Policy is a limit as it is told to clients: an item of the field RateLimit-Policy.
type Policy struct {
	// Name identifies the policy: up to 1024 printable ASCII characters, space included. Default: "default".
	Name string
	// Quota is how much a client may use in a window: from 0. What exceeds 10^15 - 1 is told as that.
	Quota int64
	// Window is the length of the window. It is told in whole seconds, rounded up. A window below one second cannot be
	// told, and is left out like one of 0.
	Window time.Duration
	// Unit is what Quota counts: one of the constants or another registered name. Default: Requests.
	Unit Unit
	// PartitionKey tells clients to which share of the server's capacity the quota belongs, if that is the same for all
	// requests; for one that differs see [State]. At most 1024 bytes. Default: none.
	PartitionKey []byte
}

const (
	defaultName     = "default"
	maxPartitionKey = 1024
)

// Policies are the policies that apply to a request, checked and prepared for the fields. They do not change, so one
// value serves any number of requests at a time.
type Policies struct {
	items []*policyItem
	field string // "" if it is made anew for each response
}

type policyItem struct {
	Policy

	name  string     // as a String
	quota string     // the item without its partition key
	limit weir.Limit // that the quota and the window are those of, zero if it is not known
}

// NewPolicies prepares policies, in the order in which they are told. It returns an error that names the policy, the field
// and what is accepted, if a name cannot be written into a header field or occurs twice, or a number is out of range.
func NewPolicies(policies ...Policy) (*Policies, error) {
	p := &Policies{items: make([]*policyItem, 0, len(policies))}
	if len(policies) == 0 {
		return nil, optionError("Policies", "empty", "one or more")
	}
	for i, policy := range policies {
		if policy.Name == "" {
			policy.Name = defaultName
		}
		if policy.Unit == "" {
			policy.Unit = Requests
		}
		if err := policy.check(fmt.Sprintf("Policies[%d]", i)); err != nil {
			return nil, err
		}
		if p.index(policy.Name) >= 0 {
			return nil, optionError(fmt.Sprintf("Policies[%d].Name", i), fmt.Sprintf("%q", policy.Name),
				"different from the names of the other policies")
		}
		p.items = append(p.items, newPolicyItem(policy))
	}
	p.field = string(p.appendField(nil, nil))
	return p, nil
}

func (p Policy) check(of string) error {
	if err := checkString(p.Name); err != nil {
		return fmt.Errorf("weir: httplimit: %s.Name %.80q %w", of, p.Name, err)
	}
	if err := checkString(string(p.Unit)); err != nil {
		return fmt.Errorf("weir: httplimit: %s.Unit %.80q %w", of, string(p.Unit), err)
	}
	switch {
	case p.Quota < 0:
		return optionError(of+".Quota", fmt.Sprint(p.Quota), "0 or more")
	case p.Window < 0:
		return optionError(of+".Window", p.Window.String(), "0 or more")
	case len(p.PartitionKey) > maxPartitionKey:
		return optionError(of+".PartitionKey", fmt.Sprintf("%d bytes long", len(p.PartitionKey)), "at most 1024 bytes long")
	}
	return nil
}

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "httplimit." + option, Value: value, Accepted: accepted}
}

func newPolicyItem(p Policy) *policyItem {
	item := appendString(nil, p.Name)
	name := string(item)
	item = append(item, ";q="...)
	item = appendInteger(item, p.Quota)
	if p.Unit != Requests {
		item = append(item, ";qu="...)
		item = appendString(item, string(p.Unit))
	}
	if p.Window >= time.Second {
		item = append(item, ";w="...)
		item = appendInteger(item, ceilSeconds(p.Window))
	}
	return &policyItem{Policy: p, name: name, quota: string(item)}
}

// appendField appends the value of RateLimit-Policy. Partition keys of states go before those of the policies.
func (p *Policies) appendField(dst []byte, states []State) []byte {
	for i := range p.items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, p.items[i].quota...)
		dst = appendPartitionKey(dst, p.partitionKey(i, states))
	}
	return dst
}

func (p *Policies) partitionKey(policy int, states []State) []byte {
	for i := range states {
		if states[i].Policy == policy && states[i].PartitionKey != nil {
			return states[i].PartitionKey
		}
	}
	return p.items[policy].PartitionKey
}

func appendPartitionKey(dst, key []byte) []byte {
	if key == nil || len(key) > maxPartitionKey {
		return dst
	}
	dst = append(dst, ";pk="...)
	return appendBytes(dst, key)
}

func (p *Policies) index(name string) int {
	for i := range p.items {
		if p.items[i].Name == name {
			return i
		}
	}
	return -1
}

// find returns the policy that a decision speaks of. A single policy speaks for all decisions.
func (p *Policies) find(name string) (index int, ok bool) {
	if len(p.items) == 1 {
		return 0, true
	}
	if name == "" {
		name = defaultName
	}
	index = p.index(name)
	return index, index >= 0
}

// limited is implemented by the limiters of package weir.
type limited interface{ Limit() weir.Limit }

// peeked is what all limiters that are not keyed have in common.
type peeked interface{ Peek(n int64) weir.Decision }

// policiesOf derives the policies of a limiter: its quota, or else the Limit of its decisions. Those of a chain are the
// policies of its members.
func policiesOf(limiter peeked) []Policy {
	if chain, ok := limiter.(interface{ Limiters() []weir.Acquirer }); ok {
		members := chain.Limiters()
		all := make([]Policy, 0, len(members))
		for _, member := range members {
			all = append(all, policiesOf(member)...)
		}
		return all
	}
	d := limiter.Peek(0)
	return []Policy{Policy{Name: d.Policy, Quota: d.Limit}.quoting(limiter)}
}

func (p Policy) quoting(limiter any) Policy {
	if l, ok := limiter.(limited); ok {
		// The windows of a calendar may have no length that could be told: months are not alike.
		p.Quota, p.Window = l.Limit().Quota()
		if l.Limit().Algorithm() == weir.AlgorithmConcurrency {
			p.Unit = ConcurrentRequests
		}
	}
	return p
}

// withQuota is p with another quota of one policy, which is that of a limit. If that is zero, no window is known.
func (p *Policies) withQuota(index int, quota int64, limit weir.Limit) *Policies {
	changed := &Policies{items: slices.Clone(p.items)}
	policy := changed.items[index].Policy
	policy.Quota, policy.Window = quota, 0
	if limit != (weir.Limit{}) {
		_, policy.Window = limit.Quota()
	}
	changed.items[index] = newPolicyItem(policy)
	changed.items[index].limit = limit
	changed.field = string(changed.appendField(nil, nil))
	return changed
}
