// Package answer tells clients of the verdict of an engine, whatever front they have come by: in the fields RateLimit,
// RateLimit-Policy and Retry-After, and as a problem detail.
package answer
