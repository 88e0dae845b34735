package weir_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
)

// TestCancelAfterResetGivesNothingBack resets a key while permits of it are reserved, and has others take all that there are
// then. A later Cancel, or a Commit of less, gives back no permit. Other keys do not notice.
func TestCancelAfterResetGivesNothingBack(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.TokenBucket(weir.PerHour(10), 0),
		weir.FixedWindow(weir.PerHour(10)),
		weir.SlidingWindow(weir.PerHour(10), 0),
		weir.SlidingCounter(weir.PerHour(10)),
		weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarHour}),
	} {
		for _, overridden := range []bool{false, true} { // then its state is in a gate
			for _, others := range []int{0, 70_000} { // are reset, too: more than are remembered
				if others > 0 && (overridden || limit.Algorithm() > weir.AlgorithmFixedWindow) {
					continue
				}
				t.Run(fmt.Sprintf("%v, overridden %v, %d others", limit.Algorithm(), overridden, others), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						untilHour := time.Hour - time.Duration(time.Now().UnixNano())%time.Hour
						time.Sleep(untilHour) // so that no window ends in the test
						k := mustKeyed[string](t, limit, weir.KeyedOptions{})
						if overridden {
							if err := keyset.Of(k).Override("k", limit, 10*time.Hour); err != nil {
								t.Fatal(err)
							}
							defer keyset.Of(k).Restore("k")
						}
						canceled, committed, other := k.TryReserve("k", 4), k.TryReserve("k", 6), k.TryReserve("other", 7)
						if !canceled.Allowed() || !committed.Allowed() || !other.Allowed() {
							t.Fatal("not granted")
						}
						k.Reset("k")
						after := k.TryReserve("k", 10)
						for i := range others {
							k.Reset(fmt.Sprint(i))
						}
						canceled.Cancel()
						committed.Commit(1)
						if left := k.Peek("k", 0).Remaining; !after.Allowed() || left != 0 {
							t.Errorf("%v after the reset, and %d left", after.Allowed(), left)
						}
						if others == 0 {
							other.Cancel()
							if left := k.Peek("other", 0).Remaining; left != 10 {
								t.Errorf("%d of another key", left)
							}
							after.Commit(3) // is exact
							if left := k.Peek("k", 0).Remaining; left != 7 {
								t.Errorf("%d left", left)
							}
						}
					})
				})
			}
		}
	}
}
