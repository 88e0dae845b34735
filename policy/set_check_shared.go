package policy

import (
	"fmt"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

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
