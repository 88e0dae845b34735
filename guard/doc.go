// Package guard throttles endpoints and locks out those that keep pushing.
//
// A server that talks to clients directly asks its [Guard] about each message, with the address it came from. Each endpoint has a
// token bucket. One without a token is throttled; one that keeps coming early all the same is locked out for a while:
//
//	g, err := guard.New(guard.DefaultOptions())
//	...
//	d, err := g.CheckAddr(addr)
//	if !d.Allowed {
//		return // drop the message: see d.Reason and d.RetryAfter
//	}
//
// The number of endpoints is bounded, and a flood of new ones ends no lockout. [Guard.Report] lists the endpoints under pressure.
// A Guard has a timer that cleans up, until it is closed.
package guard
