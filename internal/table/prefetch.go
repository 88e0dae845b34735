//go:build amd64 || arm64

package table

// prefetch has the processor begin to load the line of a word, and the next one. It reads nothing: others may write them
// meanwhile. A load in Go would have to be an atomic one, and holds up what comes after it: batches of 64 take 15 percent longer
// then.
//
//go:noescape
func prefetch(first *uint64)
