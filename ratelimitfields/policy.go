package ratelimitfields

import (
	"fmt"
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
	// Quota is how much a client may use in a window: from 0. What exceeds 10^15 - 1 is written as that.
	Quota int64
	// Window is the length of the window, written in whole seconds, rounded up. A window below one second is left out like one of
	// 0.
	Window time.Duration
	// Unit is what Quota counts: one of the constants or another registered name. Default: Requests.
	Unit Unit
	// Limit is the one that Quota and Window come from, for the text of refusals, as it was configured. It is not in the fields.
	// Default: zero, it is not known.
	Limit weir.Limit
	// PartitionKey is the share of the server that the quota belongs to, if that is the same for all requests; for one that
	// differs see [State]. At most 1024 bytes. Default: none.
	PartitionKey []byte
}

// PolicyOf is the policy of a limit: its quota, its window, and what it counts.
func PolicyOf(name string, limit weir.Limit) Policy {
	p := Policy{Name: name, Unit: Requests, Limit: limit}
	if limit.Algorithm() == weir.AlgorithmConcurrency {
		p.Unit = ConcurrentRequests
	}
	p.Quota, p.Window = limit.Quota()
	return p
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

	name  string // as a String
	quota string // the item without its partition key
}

// NewPolicies prepares policies, in the order in which they are written. The error names the policy, the field and the accepted
// range, if a name cannot be written into a header field or occurs twice, or a number is out of range.
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
		if _, ok := p.Find(policy.Name); ok {
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
		return fmt.Errorf("weir: ratelimitfields: %s.Name %.80q %w", of, p.Name, err)
	}
	if err := checkString(string(p.Unit)); err != nil {
		return fmt.Errorf("weir: ratelimitfields: %s.Unit %.80q %w", of, string(p.Unit), err)
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
	return &weir.OptionError{Option: "ratelimitfields." + option, Value: value, Accepted: accepted}
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

// Len returns how many policies there are.
func (p *Policies) Len() int { return len(p.items) }

// At returns the policy with the place i, from 0. It must not be changed.
func (p *Policies) At(i int) *Policy { return &p.items[i].Policy }

// Find returns the place of the policy with a name, where "" is "default".
func (p *Policies) Find(name string) (i int, ok bool) {
	if name == "" {
		name = defaultName
	}
	for i := range p.items {
		if p.items[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Reset removes all policies, so that those of another request can be appended. It is for Policies of one request alone.
func (p *Policies) Reset() { p.items, p.field = p.items[:0], "" }

// Append adds the policy with the place i of others, without a copy of its text, unless there is one with its name already.
// It returns the place of that name.
func (p *Policies) Append(others *Policies, i int) (place int, added bool) {
	item := others.items[i]
	if place, ok := p.Find(item.Name); ok {
		return place, false
	}
	p.items, p.field = append(p.items, item), ""
	return len(p.items) - 1, true
}
