//go:build linux && race

package etcd_test

import (
	"math/rand/v2"
	"testing"
)

// TestFaultWithTheRaceDetector does one of the faults of TestFaults, which is left to chance.
func TestFaultWithTheRaceDetector(t *testing.T) { testFaults(t, rand.IntN(len(faults)), 1) }
