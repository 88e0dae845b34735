// Package ratelimitfields writes and reads the header fields in which an HTTP server tells its clients their limits: RateLimit
// and RateLimit-Policy of the IETF draft, the trio of X-RateLimit fields, and Retry-After.
//
// A server prepares its [Policies] once, and [Headers] writes them with the [State] of each limit into a response. Middleware of
// package httplimit does so by itself. A client reads with [Parse] what this package and many others write; a Transport of
// package httpclient obeys it.
package ratelimitfields
