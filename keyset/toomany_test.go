//go:build !race

package keyset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// manyLimits is a limiter all of whose 65,534 other limits are those of keys, except one that was forgotten again.
func manyLimits(t *testing.T, o weir.KeyedOptions, forgotten weir.Limit) (k *weir.Keyed[string], p *keyset.Plan) {
	t.Helper()
	o.Clock = manualclock.New(1)
	k = keyedOf(t, weir.TokenBucket(every(time.Hour), 100), o)
	p = planOf(t, k, forgotten)
	for i := range int64(65534) {
		charge := keyset.Charge{Limiter: k, Key: fmt.Sprint(i), N: 1, Plan: planOf(t, k, weir.TokenBucket(every(time.Hour), 1000+i))}
		if l, b := keyset.TryAcquireAll(nil, charge); !l[b].Allowed() {
			t.Fatalf("%d: %+v", i, l[b].Decision())
		}
	}
	return k, p
}

// TestChargesUnderALimitTooMany: where keys have all limits that there may be, one that should change to another one is refused,
// and does not keep the request busy.
func TestChargesUnderALimitTooMany(t *testing.T) {
	k, p := manyLimits(t, weir.KeyedOptions{}, perHour(7))
	k.Take("known", 10)
	charge := keyset.Charge{Limiter: k, Key: "known", N: 1, Plan: p}
	done := make(chan struct{})
	var l []weir.Lease
	var d []weir.Decision
	go func() {
		defer close(done)
		d, _ = keyset.PeekAll(nil, charge)
		l, _ = keyset.TryAcquireAll(nil, charge)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("the request never ends")
	}
	if l[0].Allowed() || l[0].Decision().Reason != weir.ReasonTableFull || d[0].Reason != weir.ReasonTableFull {
		t.Errorf("%+v, %+v", l[0].Decision(), d[0])
	}
	if left := leftOf(k, "known"); left != 90 {
		t.Errorf("%d left", left)
	}
}

// TestDebitsUnderALimitTooMany: where keys have all limits that there may be, a key is charged under the one that it has.
func TestDebitsUnderALimitTooMany(t *testing.T) {
	k, p := manyLimits(t, weir.KeyedOptions{}, perHour(7))
	k.Take("known", 10)
	ds := debit(t, keyset.Charge{Limiter: k, Key: "known", N: 100, Plan: p}, keyset.Charge{Limiter: k, Key: "new", N: 3, Plan: p})
	if d := ds[0]; d.Limit != 100 || d.RetryAfter != 11*time.Hour {
		t.Errorf("a known key: %+v", d)
	}
	if d, s := ds[1], k.Stats(); d.Reason != weir.ReasonTableFull || s.Forgiven != 3 {
		t.Errorf("a new key: %+v, %d forgiven", d, s.Forgiven)
	}
}

// TestPlanCallsUnderALimitTooMany: where keys have all limits that there may be, one that should change to another one is
// refused, and keeps its state; others go on.
func TestPlanCallsUnderALimitTooMany(t *testing.T) {
	k, p := manyLimits(t, weir.KeyedOptions{}, perHour(7))
	k.Take("known", 10)
	known := []byte("known")
	if d := p.TakeBytes(known, 1); d.Allowed || d.Reason != weir.ReasonTableFull || d.RetryAfter <= 0 || d.RetryAfter == weir.Never {
		t.Errorf("%+v", d)
	}
	if d := p.PeekBytes(known, 1); !d.Allowed || d.Limit != 100 || d.Remaining != 90 {
		t.Errorf("a look: %+v", d)
	}
	if d := p.RefundBytes(known, 4); d.Limit != 100 || d.Remaining != 94 {
		t.Errorf("a refund is one of the limit that the key has: %+v", d)
	}
	if d := planOf(t, k, weir.Limit{}).TakeBytes(known, 1); !d.Allowed || d.Remaining != 93 {
		t.Errorf("%+v", d)
	}
	if d := planOf(t, k, perHour(1500)).TakeBytes([]byte("500"), 1); !d.Allowed || d.Remaining != 1498 {
		t.Errorf("a limit that a key has: %+v", d)
	}
}
