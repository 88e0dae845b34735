//go:build linux && race

package etcd_test

import "testing"

// TestFaultWithTheRaceDetector does the first of the faults of TestFaults, which takes the least time.
func TestFaultWithTheRaceDetector(t *testing.T) { testFaults(t, 0, 1) }
