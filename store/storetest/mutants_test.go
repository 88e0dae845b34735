package storetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// mutantVariable has the name of the mutant that TestMutant runs the suite on.
const mutantVariable = "WEIR_STORETEST_MUTANT"

// mutant is a store with a bug.
type mutant struct {
	store.Home

	// before changes a call, or makes it another one.
	before func(ask *store.Ask, charges *[]store.Charge)
	// after changes what a call returns.
	after func(charges []store.Charge, hold *store.Hold)
	// settle replaces Settle.
	settle func(ctx context.Context, s store.Home, h store.Hold, actual []int64) error
}

func (m *mutant) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if err := store.Check(ask, charges, decisions); err != nil {
		return store.Hold{}, err
	}
	asked := charges
	if m.before != nil {
		m.before(&ask, &charges)
	}
	if decisions != nil {
		decisions = decisions[:len(charges)]
	}
	hold, err := m.Home.Do(ctx, ask, charges, decisions)
	if m.after != nil && err == nil {
		m.after(asked, &hold)
	}
	return hold, err
}

func (m *mutant) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if m.settle != nil && h.ID != "" {
		return m.settle(ctx, m.Home, h, actual)
	}
	return m.Home.Settle(ctx, h, actual)
}

// first is a mutant that does what a mode does with the first charge only.
func first(mode store.Mode) mutant {
	return mutant{before: func(ask *store.Ask, charges *[]store.Charge) {
		if ask.Mode == mode && len(*charges) > 1 {
			*charges = (*charges)[:1]
		}
	}}
}

// keepsTheLimit is a mutant that leaves a bucket under the limit with the larger burst if a call of a mode comes with another.
func keepsTheLimit(mode store.Mode) mutant {
	largest := map[string]weir.Limit{}
	return mutant{before: func(ask *store.Ask, charges *[]store.Charge) {
		for i, c := range *charges {
			if c.Limit.Algorithm() != weir.AlgorithmTokenBucket {
				return
			}
			key := c.Policy + "\x00" + c.Key
			switch {
			case ask.Mode != mode && c.Limit.Permits() > largest[key].Permits():
				largest[key] = c.Limit
			case ask.Mode == mode && largest[key].Permits() > 0:
				*charges = append([]store.Charge(nil), *charges...)
				(*charges)[i].Limit = largest[key]
			}
		}
	}}
}

// refunds is a mutant that cancels by giving back all that was reserved, whatever has come back since.
func refunds(ctx context.Context, s store.Home, h store.Hold, actual []int64) error {
	if actual != nil {
		return s.Settle(ctx, h, actual)
	}
	all := make([]int64, len(h.Charges))
	for i := range h.Charges {
		all[i] = h.Charges[i].N
	}
	if err := s.Settle(ctx, h, all); err != nil {
		return err
	}
	return store.Refund(ctx, s, h.Charges)
}

// wantsAll is a mutant that settles all charges of a reservation or none.
func wantsAll(ctx context.Context, s store.Home, h store.Hold, actual []int64) error {
	for i := range h.Charges {
		if st, err := store.Inspect(ctx, s, h.Charges[i]); err != nil || st.Reservations == 0 && len(h.Charges) > 1 {
			return errors.Join(err, store.ErrNotReserved)
		}
	}
	return s.Settle(ctx, h, actual)
}

// mutants are stores with bugs, by the test that finds them and what is wrong.
var mutants = map[string]mutant{
	"SeveralAtOnce: ResetOfTheFirst":  first(store.ModeReset),
	"SeveralAtOnce: RefundOfTheFirst": first(store.ModeRefund),
	"SeveralAtOnce: DebitOfTheFirst":  first(store.ModeDebit),
	"LimitOfTheLastCharge: Debit":     keepsTheLimit(store.ModeDebit),
	"LimitOfTheLastCharge: Lend":      keepsTheLimit(store.ModeLend),
	"LimitOfTheLastCharge: Refund":    keepsTheLimit(store.ModeRefund),
	"LimitOfTheLastCharge: Peek": {before: func(ask *store.Ask, charges *[]store.Charge) {
		if ask.Mode == store.ModePeek {
			debit := *charges
			*ask = store.Ask{Mode: store.ModeDebit}
			*charges = append([]store.Charge(nil), debit...)
			for i := range *charges {
				(*charges)[i].N = 0
			}
		}
	}},
	"ReservedUnderAnotherLimit: Refunds": {settle: refunds},
	"SettledInPart: WantsAll":            {settle: wantsAll},
	"CancelGivesBack: SharesItsCharges": {after: func(charges []store.Charge, hold *store.Hold) {
		if hold.ID != "" {
			hold.Charges = charges
		}
	}},
	"ConcurrencyIsReserved: AtMostAnHour": {before: func(ask *store.Ask, _ *[]store.Charge) {
		ask.Hold = min(ask.Hold, time.Hour)
	}},
}

// TestMutant is the suite on a mutant, for [TestMutantsAreFound].
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	m, ok := mutants[name]
	if !ok && name != "none" {
		return
	}
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := manualclock.New(time.Now().UnixNano())
		s, err := store.NewMemory(store.MemoryOptions{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		one := m
		one.Home = s
		return storetest.Subject{Store: &one, Now: clock.Now, Advance: clock.Advance, Steps: 100}
	})
}

// TestMutantsAreFound: the suite finds each bug, by the test that is for it, and none where there is none.
func TestMutantsAreFound(t *testing.T) {
	run := func(t *testing.T, name, test string) (failed bool, output string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$/^"+test+"$")
		c.Env = append(os.Environ(), mutantVariable+"="+name)
		out, err := c.CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		return err != nil, string(out)
	}
	for name := range mutants {
		t.Run(name, func(t *testing.T) {
			test, _, _ := strings.Cut(name, ":")
			if failed, output := run(t, name, test); !failed || !strings.Contains(output, "--- FAIL: TestMutant/"+test) {
				t.Errorf("%s does not find it:\n%s", test, output)
			}
			if failed, output := run(t, "none", test); failed {
				t.Errorf("%s fails where nothing is wrong:\n%s", test, output)
			}
		})
	}
}
