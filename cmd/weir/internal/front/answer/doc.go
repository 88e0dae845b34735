// Package answer tells clients what was decided, whatever front they have come by: in the fields RateLimit, RateLimit-Policy and
// Retry-After, and as a problem detail of RFC 9457, which also says why a front cannot do what it is asked.
package answer
