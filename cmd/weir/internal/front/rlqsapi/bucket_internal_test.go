package rlqsapi

import (
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
)

// TestLimitsInAFileAreAssigned: a durable limit is assigned by the one process that has it in a file, and by no node of several.
func TestLimitsInAFileAreAssigned(t *testing.T) {
	p := &policy.Policy{Name: "month", Durability: policy.DurabilityCluster}
	l := &policy.ExplainedLimit{Cost: 1, Applied: weir.CalendarWindow(1000, algo.Calendar{Unit: algo.CalendarMonth})}
	for _, alone := range []bool{false, true} {
		s := &Service{o: Options{Alone: alone}}
		if _, err := s.limitOf(p, l); (err == nil) != alone {
			t.Errorf("alone %v: %v", alone, err)
		}
	}
}
