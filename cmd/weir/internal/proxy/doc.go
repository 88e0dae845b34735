// Package proxy puts a limit in front of any HTTP service: weir proxy.
//
// The proxy finds the client of a request, and asks the limit for a permit under its key. A refused request gets its answer at
// once, and never reaches the upstream. An allowed one waits for a place at the upstream, if those are limited too, and is
// passed on as it came: bodies are streamed both ways at the same time, and an upgraded connection is a pipe.
//
// The proxy adds the X-Forwarded fields to a request, and the RateLimit fields to a response. It takes no path from the
// upstream.
package proxy
