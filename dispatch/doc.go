// Package dispatch limits the messages of a server whose messages have opcodes, by opcode and address.
//
// Handlers are registered under an opcode, with a [tiers.Attribute] or without. A message beyond the limit is dropped. The
// connection is told so at most once per cooldown, so that refusing costs less than serving.
//
//	d, err := dispatch.New(dispatch.Options[*conn, message]{
//		Tiers: ts,
//		Guard: g, // for handlers without an attribute
//		Op:    func(m message) uint64 { return m.op },
//		Peer:  func(c *conn) *dispatch.Peer { return c.peer },
//	})
//	...
//	err = d.Handle(opLogin, &tiers.Attribute{RPS: 1, Burst: 2}, login)
//	...
//	err = d.Dispatch(ctx, conn, msg) // for every message that comes
package dispatch
