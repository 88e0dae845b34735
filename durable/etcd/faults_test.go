//go:build linux && !race

package etcd_test

import "testing"

// TestFaults does to a cluster of three processes whatever can befall it, under load, and counts what callers were granted: with
// records that are ahead, and with every grant written.
func TestFaults(t *testing.T) { testFaults(t, 0, len(faults)) }
