package durable

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/store"
)

// TestDamagedRecordIsRefused: no bit of a record can change, and nothing of it be missing or added, without being noticed; nor is it
// read under another name.
func TestDamagedRecordIsRefused(t *testing.T) {
	r, err := store.NewRecord(batchLimit, time.Now().UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	r.Take(900)
	value := encodeRecord("api/key", r, 100)
	if _, ahead, err := decodeRecord("api/key", value); err != nil || ahead != 100 {
		t.Fatal(ahead, err)
	}
	refused := func(what, name string, b []byte) {
		t.Helper()
		if _, _, err := decodeRecord(name, b); !errors.Is(err, ErrDamaged) && !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		if CheckValue(name, b) == nil {
			t.Errorf("%s: CheckValue found nothing", what)
		}
	}
	for bit := range 8 * len(value) {
		b := append([]byte(nil), value...)
		b[bit/8] ^= 1 << (bit % 8)
		refused(fmt.Sprintf("bit %d", bit), "api/key", b)
	}
	for n := range value {
		refused(fmt.Sprintf("%d bytes", n), "api/key", value[:n])
		if zeroed := append(append([]byte(nil), value[:n]...), make([]byte, len(value)-n)...); !bytes.Equal(zeroed, value) {
			refused(fmt.Sprintf("zeros from %d", n), "api/key", zeroed)
		}
	}
	refused("a byte more", "api/key", append(append([]byte(nil), value...), 0))
	refused("another name", "api/kez", value)
	if _, _, err := decodeRecord("Fapi/key", encodeRecord("Fapi/key", r, 100)); !errors.Is(err, errMalformed) {
		t.Errorf("a record of another algorithm: %v", err)
	}
	old := append([]byte{1}, value[sealSize:]...)
	refused("version 1", "api/key", old)
	if _, _, err := decodeRecord("api/key", old); !strings.Contains(err.Error(), "version 1") {
		t.Error(err)
	}
}

// TestDamagedRecordGrantsNothing: a record that has changed where it is stored grants nothing, and an adjustment that has changed is
// not shown; other keys go on.
func TestDamagedRecordGrantsNothing(t *testing.T) {
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		r, err := store.NewRecord(batchLimit, time.Now().UnixNano())
		if err != nil {
			t.Fatal(err)
		}
		a := Adjustment{Policy: "p", Key: "0", Permits: -1, By: "x", Reason: "y"}
		own := &adjusting{Adjustment: a, name: trailName("p", "0") + "1"}
		writes := []Write{{Name: batchName(1), Value: encodeRecord(batchName(1), r, 0)}, own.write()}
		for i := range writes {
			writes[i].Value[len(writes[i].Value)-1] ^= 1
		}
		if _, err := c.Store(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
		all := together(t, o, 2)
		if err := all[1]; !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		if all[0] != nil || all[2] != nil {
			t.Errorf("%v, %v", all[0], all[2])
		}
		if _, err := o.Adjustments(t.Context(), "p", "0", 10); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}
