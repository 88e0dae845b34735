// Package rlsapi is the front for Envoy and what is built on it: the gRPC server of the rate limit service
// (ShouldRateLimit), of Kuadrant's service that checks first and charges afterwards (CheckRateLimit and Report), of the rate
// limit quota service, and of the services for health and reflection.
//
// Every descriptor of a request becomes a request to the engine, and all of them are decided as one step: if any is over its
// limit, none is charged. What a descriptor becomes is told by the rules of the configuration (see [Options.Limits]), or by
// a configuration of envoyproxy/ratelimit (see [Options.Tree]).
package rlsapi
