// Package tiers gives handlers limits of their own, and lets those with about the same limit share one limiter.
//
// A handler asks for a limit in an [Attribute], 5 requests a second and bursts of 3, and gets the tier above, 8 and 4. Handlers
// whose tiers are equal share a [guard.Guard], in which each opcode of each address has a bucket. So a program with a thousand
// handlers has at most 64 limiters. An attacker that comes from a new port for every message is allowed no more than one that
// does not.
//
//	ts, err := tiers.New(tiers.Options{})
//	...
//	search, err := ts.Tier(&tiers.Attribute{RPS: 5, Burst: 3})
//	...
//	if d := search.Check(opSearch, addr); !d.Allowed {
//		return // drop the message
//	}
//
// Package dispatch puts them to use in a server whose messages have opcodes.
package tiers
