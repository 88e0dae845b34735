// Package guard throttles endpoints and locks out those that keep pushing.
//
// A server that talks to clients directly asks its [Guard] for each message, with the address it came from. Each endpoint has
// a token bucket. One without a token is told to slow down; one that keeps coming early all the same is locked out for a while:
//
//	g, err := guard.New(guard.DefaultOptions())
//	...
//	d, err := g.CheckAddr(addr)
//	if !d.Allowed {
//		return // drop the message: d.Reason and d.RetryAfter say why and for how long
//	}
//
// The number of endpoints is bounded, and a flood of new ones makes it forget none that is locked out. [Guard.Report] shows who
// is under pressure. A Guard has a timer that cleans up, until it is closed.
package guard
