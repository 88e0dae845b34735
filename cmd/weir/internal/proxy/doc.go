// Package proxy puts a limit in front of any HTTP service: weir proxy.
//
// A request goes one way. Its client is found out, its key asks the limit for a permit, and what is refused is answered
// at once and never reaches the upstream. What is admitted waits for a place at the upstream, if those are limited too,
// and is passed on as it came: bodies are streamed both ways at the same time, and an upgraded connection is a pipe.
//
// What the proxy adds to a request are the X-Forwarded headers, and to a response the RateLimit fields. Nothing of the
// path space of the upstream is taken.
package proxy
