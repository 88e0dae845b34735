// Package checkapi is the HTTP front of the server: a JSON API that answers whether a request is within its limit.
//
//	POST /v1/check      {"policy": "default", "key": "alice", "cost": 1}
//
// policy is "default" and cost is 1 unless they are given. key is a string of 1 to 1024 bytes; of a policy of a
// configuration that has no key it can also be "", which is the key of all requests that its rules match. cost is a whole
// number from 0, a probe that takes nothing, to 10^15. The answer is 200 if the request is within its limit and 429 if not, both
// with the decision:
//
//	{"allowed": false, "reason": "limited", "policy": "default", "limit": 20, "remaining": 0,
//	 "retry_after": 0.1, "reset_after": 2}
//
// reason is "none" for a request that is allowed, otherwise the name of a weir.Reason. limit is the most permits that can
// be had at once. retry_after and reset_after are seconds, rounded up to a millisecond, so that coming back after
// retry_after is never too early; retry_after is null, with the reason "never", if no wait helps because the cost exceeds
// limit. limit and remaining are null for a policy of a configuration that is not enforced. The header fields RateLimit and
// RateLimit-Policy are always set otherwise, Retry-After, in whole seconds, on refusals that a wait can help.
//
// A request that cannot be answered gets another 4xx status and a problem of RFC 9457 (application/problem+json) whose
// detail names the field, its value and what is accepted:
//
//	400  the body is not such an object, or a value is out of range
//	404  there is no such policy, or no such page
//	405  the method is not POST
//	413  the body exceeds 64 KiB
//	415  the content type is not application/json
//
// With a configuration ([NewConfigured]) there are also
//
//	POST /v1/decide     the verdict on a request that the body describes, by the rules: as above, with all decisions; policy,
//	                    limit and remaining are null if no limit holds for it; a cost of 0 takes nothing
//	POST /v1/explain    why it would be answered so
//	GET /v1/status      the state of policies, rules and reloads
//	POST /v1/reload     reads the configuration again
//
// of which the last three are for those that [Admin] lets in. Others get 401 or 403; a configuration that cannot be used is
// answered with 422 and all of its mistakes.
//
// GET /healthz answers 200 while the server takes requests, and 503 while it shuts down. GET / says what this is.
package checkapi
