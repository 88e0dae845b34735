//go:build amd64 || arm64

package table

// prefetch has the processor begin to load the lines of two words. It reads nothing: others may write them meanwhile. A load in
// Go would have to be an atomic one, and holds up what comes after it: batches of 64 take 15 percent longer then.
//
//go:noescape
func prefetch(first, last *uint64)
