package cputime_test

import (
	"testing"

	"github.com/weirhq/weir/internal/cputime"
)

// TestUsedGrows: what a process does is counted.
func TestUsedGrows(t *testing.T) {
	before, err := cputime.Used()
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); ; n = n*n + 1 {
		now, err := cputime.Used()
		if err != nil || now < before {
			t.Fatalf("%v after %v: %v", now, before, err)
		}
		if now > before {
			return
		}
	}
}
