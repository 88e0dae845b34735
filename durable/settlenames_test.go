package durable_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// TestSettleChecksNames: what cannot be the name of a key, or of a reservation, takes no room in memory.
func TestSettleChecksNames(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		for _, r := range []durable.Reservation{
			{ID: "x", Policy: ""},
			{ID: "x", Policy: strings.Repeat("p", 257)},
			{ID: "x", Policy: "p", Key: strings.Repeat("k", 1025)},
			{ID: strings.Repeat("x", 4000), Policy: "p"},
		} {
			for _, err := range []error{o.Commit(t.Context(), r, 1), o.Cancel(t.Context(), r)} {
				if _, misuse := errors.AsType[*weir.OptionError](err); !misuse {
					t.Errorf("%.20q, %.20q: %v", r.ID, r.Policy, err)
				}
			}
		}
		if n := o.Stats().Keys; n != 0 {
			t.Errorf("%d keys are in memory", n)
		}
	})
}
