// Package answer writes decisions to HTTP clients in the same way on every front: as the fields RateLimit, RateLimit-Policy and
// Retry-After, and as a problem detail of RFC 9457. It also has the problems of requests that a front cannot serve.
package answer
