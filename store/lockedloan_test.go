package store_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// losesLease has the lease of the dying caller pass at one of its calls, while another looks at one of the keys.
func (k *killed) losesLease(t *testing.T, at int, seen []store.Charge) {
	t.Helper()
	k.locks.calls = 0
	k.locks.before = func(call int) error {
		if call == at {
			k.clock.Advance(killLease)
			k.left(t, seen) // takes the lock, which has passed
		}
		return nil
	}
}

// TestDebitIsNotRepeated loses the lease between the keys of a Debit.
func TestDebitIsNotRepeated(t *testing.T) {
	charges := killCharges(3)
	for at := 1; at <= 6; at++ {
		k := newKilled(t)
		k.losesLease(t, at, charges[2:])
		ds := make([]weir.Decision, 3)
		if err := store.Debit(t.Context(), k.dying, charges, ds); err != nil {
			t.Fatal(err)
		}
		if left := k.left(t, charges); fmt.Sprint(left) != "[7 7 7]" || ds[0].Remaining != 7 || ds[2].Remaining != 7 {
			t.Errorf("at call %d: left %v, said %+v", at, left, ds)
		}
	}
}

// TestReturnIsNotRepeated loses the lease in the middle of a Return.
func TestReturnIsNotRepeated(t *testing.T) {
	c := killCharges(1)[0]
	c.N = 6
	for at := 1; at <= 2; at++ {
		k := newKilled(t)
		var loans [2]store.Hold
		for i := range loans {
			l, d, err := store.Lend(t.Context(), k.alive, c, 1)
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			loans[i] = l
		}
		k.losesLease(t, at, []store.Charge{c})
		if err := store.Return(t.Context(), k.dying, loans[0], 2); err != nil {
			t.Fatal(err)
		}
		if left := k.left(t, []store.Charge{c}); left[0] != 2 {
			t.Errorf("at call %d: left %v", at, left)
		}
	}
}

// TestLoansWhereverTheCallerDies wants a loan taken whole or not at all, and a return to give back all of it or nothing.
func TestLoansWhereverTheCallerDies(t *testing.T) {
	c := killCharges(1)[0]
	charges := []store.Charge{c}
	everyDeath(t, func(t *testing.T, k *killed, die func()) error {
		die()
		l, d, err := store.Lend(t.Context(), k.dying, c, 1)
		k.clock.Advance(killLease)
		if left := k.left(t, charges)[0]; left != 7 && (left != 10 || err == nil) {
			t.Errorf("%v: %d are left", err, left)
		}
		if err == nil && (l.Lent() != 3 || !d.Allowed) || err != nil && (l.Lent() != 0 || d != (weir.Decision{})) {
			t.Errorf("%+v, %+v, %v", l, d, err)
		}
		return err
	})
	everyDeath(t, func(t *testing.T, k *killed, die func()) error {
		l, _, err := store.Lend(t.Context(), k.alive, c, 3)
		if err != nil {
			t.Fatal(err)
		}
		die()
		err = store.Return(t.Context(), k.dying, l, 2)
		k.clock.Advance(killLease)
		if left := k.left(t, charges)[0]; left != 9 && (left != 7 || err == nil) {
			t.Errorf("%v: %d are left", err, left)
		}
		return err
	})
}
