// Package policy limits the requests of a server by who sends them and what they ask for.
//
// An [Engine] has policies, which are limits with a name, and rules, which choose the requests that they apply to. Every rule
// that matches a request adds its limits. The request is charged to all of them or to none, as one step:
//
//	engine, err := policy.NewEngine(&policy.Set{
//		Policies: []policy.Policy{
//			{Name: "client", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10), 0)}}, Key: policy.Client()},
//			{Name: "login", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(5), 0)}}, Key: policy.Client()},
//		},
//		Rules: []policy.Rule{
//			{Name: "all", Limits: []policy.Use{{Policy: "client"}}},
//			{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: []policy.Use{{Policy: "login"}}},
//			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
//		},
//	}, policy.EngineOptions{})
//	...
//	engine.Take(&policy.Request{Path: "/login", Client: addr}, verdict)
//	defer verdict.Release()
//
// [Engine.Load] replaces the set while requests are served, without losing a count. A policy can be in shadow, or have a
// candidate beside it, and the [Report] counts what they would have refused. [Engine.Explain] shows for a request which rules
// match, which do not and why, and what its limits would decide. The module config reads sets from a file.
//
// Limits are those of the process, or shared by all processes over one store, depending on the [Consistency] of their policy: see
// [EngineOptions].Store and package store. Callers that know the policy and the key themselves name both: see [Named].
// [Engine.TakeAll] allows several requests together or none of them.
package policy
