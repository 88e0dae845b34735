// Package cmp stands in for that of github.com/google/go-cmp in builds of the program. The storage of etcd calls Diff in a
// check that is off unless ETCD_VERIFY is set. The real one calls methods by names that are known only when it runs, for which
// the linker keeps every exported method: docs/decisions/0018-a-lean-program.md.
package cmp

import (
	"fmt"
	"reflect"
)

// Option would change what Diff compares. There is none.
type Option interface{ none() }

// Diff returns "" if x and y are deeply equal, and what they are otherwise.
func Diff(x, y any, _ ...Option) string {
	if reflect.DeepEqual(x, y) {
		return ""
	}
	return fmt.Sprintf("%v is not %v", x, y)
}
