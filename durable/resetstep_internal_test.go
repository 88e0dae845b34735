package durable

import (
	"errors"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

func reset(t *testing.T, o *Owner, key string) error {
	t.Helper()
	_, err := o.Do(t.Context(), store.Ask{Mode: store.ModeReset}, []store.Charge{{Policy: "p", Key: key}}, nil)
	return err
}

// TestResetIsOneStep: if one of the records of a key cannot be read, none is reset.
func TestResetIsOneStep(t *testing.T) {
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		if err := errors.Join(together(t, o, 1)...); err != nil {
			t.Fatal(err)
		}
		damaged := Write{Name: recordKey("p", "0", weir.AlgorithmSlidingWindow), Value: []byte{recordVersion, 0, 0, 0, 0, 0}}
		if _, err := c.Store(t.Context(), []Write{damaged}); err != nil {
			t.Fatal(err)
		}
		if err := reset(t, o, "0"); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		charge, d := store.Charge{Policy: "p", Key: "0", Limit: batchLimit}, make([]weir.Decision, 1)
		_, err := o.Do(t.Context(), store.Ask{Mode: store.ModePeek}, []store.Charge{charge}, d)
		if err != nil || d[0].Remaining != 999 {
			t.Errorf("%+v, %v", d[0], err)
		}
	})
}
