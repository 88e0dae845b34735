// Package httplimit is a middleware for net/http that limits requests with the limiters of package weir, and tells clients about
// it: in the fields RateLimit and RateLimit-Policy of the IETF draft, in Retry-After, and in a body of type
// application/problem+json.
//
//	limit := httplimit.PerClient(weir.PerSecond(10), 20)
//	...
//	err := http.ListenAndServe(":8080", limit(mux))
//
// [New] has all options: another key, several limits at once, a queue. Every response then has what remains, and the twenty-first
// request of a client within a moment is refused with 429:
//
//	HTTP/1.1 429 Too Many Requests
//	Content-Type: application/problem+json
//	Ratelimit: "per-client";r=0;t=1
//	Ratelimit-Policy: "per-client";q=20;w=2
//	Retry-After: 1
//
// A client is its network address, and no header field is believed about it; [ByClient] takes the proxies that may be believed.
// [RequireHeader], [ByHeader], [ByPattern], [ByAll] and [ByFirst] make other keys.
//
// Where the limits depend on the request, use a [Gate], which asks the rules of a [policy.Engine] in place of one limiter. With a
// [Mux], handlers name their policies in code.
//
// Package ratelimitfields writes the fields without the middleware, for servers that decide in another way, and reads them.
// Package httpclient is for clients: it sends nothing before a server will accept it.
//
// For a request that is allowed, the middleware makes 4 allocations (TestAdmittedAllocations), and so does a Gate
// (TestGateAllocations). A key made of an IPv6 address is one more.
package httplimit
