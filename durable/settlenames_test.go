package durable_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// TestSettleChecksNames: what cannot be the name of a key, or of a reservation, takes no room in memory.
func TestSettleChecksNames(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		for _, r := range []store.Hold{
			{ID: "x", Charges: []store.Charge{{Policy: ""}}},
			{ID: "x", Charges: []store.Charge{{Policy: strings.Repeat("p", 257)}}},
			{ID: "x", Charges: []store.Charge{{Policy: "p", Key: strings.Repeat("k", 1025)}}},
			{ID: strings.Repeat("x", 4000), Charges: []store.Charge{{Policy: "p"}}},
		} {
			for _, err := range []error{o.Settle(t.Context(), r, []int64{1}), o.Settle(t.Context(), r, nil)} {
				if _, misuse := errors.AsType[*weir.OptionError](err); !misuse {
					t.Errorf("%.20q, %.20q: %v", r.ID, r.Charges[0].Policy, err)
				}
			}
		}
		if n := o.Stats().Keys; n != 0 {
			t.Errorf("%d keys are in memory", n)
		}
	})
}
