// Package policy limits the messages of a server by who sends them and what they ask for.
//
// [Tiers] give handlers limits of their own. A handler says what it wants in an [Attribute], 5 requests a second and bursts
// of 3, and gets the tier above, 8 and 4. Handlers whose tiers are equal share one limiter, a [weir.Guard], in which each
// opcode of each address has a bucket. So a program with a thousand handlers has at most 64 limiters, and an attacker who
// comes from a new port for every message gets no more than one who does not.
//
// [Dispatcher] puts it to use: handlers are registered under an opcode, with an attribute or without. A message beyond the
// limit is dropped, and the connection is told so at most once per cooldown, so that refusing does not cost more than
// answering.
//
//	tiers, err := policy.NewTiers(policy.TiersOptions{})
//	...
//	d, err := policy.NewDispatcher(policy.DispatcherOptions[*conn, message]{
//		Tiers: tiers,
//		Guard: guard, // for handlers without an attribute
//		Op:    func(m message) uint64 { return m.op },
//		Peer:  func(c *conn) *policy.Peer { return c.peer },
//	})
//	...
//	err = d.Handle(opLogin, &policy.Attribute{RPS: 1, Burst: 2}, login)
//	...
//	err = d.Dispatch(ctx, conn, msg) // for every message that comes
package policy
