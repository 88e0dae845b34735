package ratelimitconfig

import (
	"errors"

	"github.com/weirhq/weir/policy"
)

// File is a file that was read.
type File struct {
	// Name is what mistakes call it.
	Name string
	Data []byte
}

// Options say what files leave open.
type Options struct {
	// Algorithm counts the limits that do not say. Default: FixedWindow, as envoyproxy/ratelimit counts.
	Algorithm Algorithm
	// Consistency is that of limits that do not say. Default: policy.ConsistencyLocal.
	Consistency policy.Consistency
	// Fail says what happens while the store of shared limits is unavailable. Default: policy.FailClosed.
	Fail policy.Fail
	// MaxKeys bounds the keys that each policy tracks. Default: that of policy.Policy.
	MaxKeys int
	// Merge accepts several files with the same domain, whose descriptors are put together. Default: that is a mistake.
	Merge bool
	// Shadow makes all limits those of shadow mode. Default: those that say so.
	Shadow bool
	// Taken tells whether a policy of this name exists already, so that another one is chosen. Default: nil, none.
	Taken func(name string) bool
}

// Algorithm is how limits are counted.
type Algorithm uint8

// The algorithms.
const (
	// FixedWindow counts in windows that begin with each unit of time.
	FixedWindow Algorithm = iota
	// TokenBucket lets permits come back evenly.
	TokenBucket
	// SlidingWindow counts the last unit of time, in segments.
	SlidingWindow
	// SlidingCounter does so by two counters.
	SlidingCounter

	algorithms
)

// Config is what files say. It never changes, and is safe for concurrent use.
type Config struct {
	// Policies count the limits. They must not be changed.
	Policies []policy.Policy
	// Warnings are what is likely not meant, a line each.
	Warnings []string
}

// Parse reads files. The error lists all that is wrong with them: it has a method Mistakes() []string.
func Parse(files []File, o Options) (*Config, error) {
	return nil, errors.New("weir: not there yet")
}

// Read reads a file, or all files of a directory whose names end in .yaml or .yml and do not begin with a dot, in the order of
// their names.
func Read(path string) ([]File, error) { return nil, errors.New("weir: not there yet") }
