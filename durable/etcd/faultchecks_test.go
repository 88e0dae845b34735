//go:build linux

package etcd_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
)

// grant is one that was asked for and answered so many milliseconds after the beginning.
func grant(n, asked, answered int64) event {
	const ms = int64(time.Millisecond)
	return event{N: n, Asked: asked * ms, Answered: answered * ms, Reason: weir.ReasonNone}
}

// TestFaultChecks: what the tests of faults look for is found, and nothing else.
func TestFaultChecks(t *testing.T) {
	t.Parallel()
	const perSecond = 1e-9
	for _, c := range []struct {
		name   string
		events []event
		over   bool
	}{
		{"a burst", []event{grant(5, 0, 1), grant(5, 1, 2)}, false},
		{"more than a burst", []event{grant(5, 0, 1), grant(5, 1, 2), grant(1, 2, 3)}, true},
		{"what has come back", []event{grant(10, 0, 1), grant(1, 1, 1001), grant(1, 1500, 2100)}, false},
		{"more than has come back", []event{grant(10, 0, 1), grant(1, 1100, 1101), grant(1, 1102, 1103), grant(1, 1103, 1104)}, true},
		{"a late one that may have been early", []event{grant(10, 1000, 1001), grant(10, 0, 30_000)}, false},
		{"two that cannot both", []event{grant(10, 1000, 1001), grant(10, 0, 5000)}, true},
		{"out of order", []event{grant(1, 3000, 3001), grant(10, 0, 1), grant(1, 1000, 2001)}, false},
	} {
		// 10 permits of a burst, one comes back in a second.
		if where, over := bucketDemand(c.events, perSecond, 10); over > 0.01 != c.over {
			t.Errorf("%s: %.3f too many %s", c.name, over, where)
		}
	}
	window := []event{grant(windowPermits, 10, 20), grant(windowPermits, 510, 520)}
	if over := windowDemand(window, 0, 0); over != "" {
		t.Error(over)
	}
	if over := windowDemand(append(window, grant(1, 490, 510)), 0, 0); over != "" {
		t.Error(over)
	}
	if over := windowDemand(append(window, grant(1, 530, 540)), 0, 0); over == "" {
		t.Error("one too many in a window is not found")
	}
	first, second, gone := grant(1, 0, 50), grant(1, 1, 40), event{Reason: weir.ReasonUnavailable, Answered: int64(45 * time.Millisecond)}
	first.Number, first.Expires, second.Number, second.Expires, gone.Number = 1, 100, 2, 101, 3
	if wrong := outOfOrder([]event{second, first}); wrong != "" {
		t.Error(wrong)
	}
	first.Expires = 102
	if wrong := outOfOrder([]event{second, first, gone}); wrong != "" { // the first may have come to a later owner
		t.Error(wrong)
	}
	if wrong := outOfOrder([]event{second, first}); wrong == "" {
		t.Error("a call that overtakes is not found")
	}
	before, after := grant(1, 0, 10), grant(1, 5, 20)
	before.Epoch, after.Epoch = 7, 6
	if wrong := deposed([]event{before, after}); wrong != "" {
		t.Error(wrong)
	}
	after.Asked = before.Answered + 1
	if wrong := deposed([]event{before, after}); wrong == "" {
		t.Error("an owner is not found that grants after the next one")
	}
	operations := func(late int64) (all []porcupine.Operation) {
		for i, left := range []int64{quotaPermits - 2, late} {
			all = append(all, porcupine.Operation{
				ClientId: i, Input: int64(2), Output: event{Reason: weir.ReasonNone, Remaining: left}, Call: int64(10 * i), Return: int64(10*i + 5),
			})
		}
		return all
	}
	if !porcupine.CheckOperations(quotaModel, operations(quotaPermits-4)) || !porcupine.CheckOperations(quotaModel, operations(0)) {
		t.Error("a right history of a quota is taken for a wrong one")
	}
	if porcupine.CheckOperations(quotaModel, operations(quotaPermits-3)) {
		t.Error("permits that were granted twice are not found")
	}
	if d := withoutService([]event{grant(1, 0, 10), grant(1, 20, 2000), grant(1, 2000, 2001)}, 1, nil); d != 1990*time.Millisecond {
		t.Error(d)
	}
}
