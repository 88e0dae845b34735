// Package summary makes the tables and the pictures of docs/benchmarks.md of docs/benchmarks/raw.md, which command numbers
// writes. It measures nothing.
package summary

//go:generate go run ../cmd/summary ../../../docs
