// Package verify holds the property, history, leak and contention tests of weir that use third-party test libraries.
package verify
