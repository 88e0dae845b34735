// Package httplimit is a middleware for net/http that limits requests with the limiters of package weir, and tells clients
// about it: in the fields RateLimit and RateLimit-Policy of the IETF draft, in Retry-After, and in a body of type
// application/problem+json.
//
//	limit := httplimit.PerClient(weir.PerSecond(10), 20)
//	...
//	err := http.ListenAndServe(":8080", limit(mux))
//
// [New] has all options: another key, several limits at once, a queue. Every answer then says how much is left, and the
// twenty-first request of a client within a moment is refused with 429:
//
//	HTTP/1.1 429 Too Many Requests
//	Content-Type: application/problem+json
//	Ratelimit: "per-client";r=0;t=1
//	Ratelimit-Policy: "per-client";q=20;w=2
//	Retry-After: 1
//
// A client is its network address, and no header field is believed about it; [ByClient] says how to name the proxies that
// may be believed. [RequireHeader], [ByHeader], [ByPattern], [ByAll] and [ByFirst] make other keys.
//
// For a request that is admitted, the middleware makes 4 allocations: a string and a slice for the values of the two fields,
// and a context and a copy of the request that carries it, so that the request is not charged twice
// (TestAdmittedAllocations). A key made of an IPv6 address is one more.
//
// Package ratelimitfields writes the fields without the middleware, for servers that decide in another way, and reads them.
//
// Where several limits hold for a request, depending on what it is, a [Gate] asks the rules of a [policy.Engine] in place of one
// limiter, and [Mux] lets handlers say which policy holds for them. A Gate makes the same 4 allocations
// (TestGateAllocations).
//
// Package httpclient is for clients: it sends nothing before a server will accept it.
package httplimit
