//go:build !unix

package respapi

// openSocket is false: all connections are streams.
func openSocket(*conn) bool { return false }
