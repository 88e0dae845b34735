// Package choosing simulates each algorithm under the same requests, and draws what becomes of them, for docs/choosing.md. Time
// is virtual, so the same program has the same result every time.
package choosing

//go:generate go run ../cmd/choosing -images ../../../docs/images
