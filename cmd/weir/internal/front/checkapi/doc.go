// Package checkapi is the HTTP front of the server: a JSON API that reports whether requests are within their limits.
//
//	POST /v1/check      {"policy": "default", "key": "alice", "cost": 1}
//	POST /v1/decide     {"method": "POST", "path": "/login", "client": "192.0.2.1"}
//	POST /v1/batch      {"checks": [{"key": "alice"}, {"request": {"path": "/"}}], "atomic": true}
//	POST /v1/reserve    {"key": "alice", "cost": 500, "expires_in": 30}
//	POST /v1/commit     {"id": "...", "cost": 320}
//	POST /v1/cancel     {"id": "..."}
//
// A check names a policy and a key. policy is "default" and cost is 1 unless they are given. key is a string that is not empty;
// of a policy that has no key it can also be "", which is the key of all requests that its rules match. cost is a whole number
// from 0, a probe that takes nothing, to 10^15. What /v1/decide is asked describes a request, to which the rules apply. With
// "charge": "afterwards" the cost has been spent already: a refused check is charged nevertheless. The answer is 200 if the
// request is within its limits, 429 if not, and 503 if a decision was not possible, all with the decision:
//
//	{"allowed": false, "reason": "limited", "policy": "default", "limit": 20, "remaining": 0,
//	 "retry_after": 0.1, "reset_after": 2}
//
// reason is "none" for a request that is allowed, otherwise the name of a weir.Reason. limit is the most permits that can
// be had at once. retry_after and reset_after are seconds, rounded up to a millisecond, so that coming back after
// retry_after is never too early; retry_after is null, with the reason "never", if no wait helps because the cost exceeds
// limit. limit and remaining are null where no limit is enforced. The header fields RateLimit and RateLimit-Policy are always set
// otherwise, Retry-After, in whole seconds, on refusals that a wait can help.
//
// The checks of a batch are decided on one after the other, each for itself, or all together if it is atomic: then all are
// charged or none is. A reservation is charged at once, and settled by its id with what it really cost, or not at all: what is
// not settled when it expires is canceled.
//
// A request that cannot be answered gets another 4xx status and a problem of RFC 9457 (application/problem+json) whose
// detail names the field, its value and what is accepted:
//
//	400  the body is not such an object, or a value is out of range
//	404  there is no such policy, no such reservation, or no such page
//	405  the method is another one
//	413  the body exceeds 1 MiB
//	415  the content type is not application/json, or the body is compressed
//
// For those that an [adminguard.Guard] lets in there are also the state of the server, and what changes it: /v1/explain,
// /v1/status, /v1/reload, /v1/quota, /v1/quota/adjust and /v1/quota/adjustments. Others get 401 or 403.
//
// GET /openapi.json describes all of this to programs. GET /healthz answers 200 while the server takes requests, and 503 while it
// shuts down. GET /readyz is 503 as well while the server cannot decide on its durable limits. GET / says what this is.
package checkapi
