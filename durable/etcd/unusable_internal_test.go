package etcd

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestUnusable: only what is damage for certain ends the attempts of a node, which otherwise may have all that it needs later.
func TestUnusable(t *testing.T) {
	o := EmbeddedOptions{Name: "a", Directory: "/data", Peers: map[string]string{"a": "http://a", "b": "http://b", "c": "http://c"}}
	differ := errors.New("1 found data inconsistency with peers")
	for _, c := range []struct {
		why    error
		differ int64
		repair bool
	}{
		{errors.New("walpb: crc mismatch"), 0, true},
		{fmt.Errorf("bootstrap failed: %w", syscall.ENOSPC), 0, false},
		{errors.New("cannot open: too many open files"), 0, false},
		{differ, 1, false}, // the other one may be damaged
		{differ, 2, true},
	} {
		f := newFailure("/data")
		f.fail(c.why)
		f.differ.Store(c.differ)
		err := o.unusable(f)
		if errors.Is(err, ErrRepair) != c.repair || !strings.Contains(err.Error(), c.why.Error()) ||
			c.repair != strings.Contains(err.Error(), "weir cluster remove a") {
			t.Errorf("%v, %d differ: %v", c.why, c.differ, err)
		}
	}
}
