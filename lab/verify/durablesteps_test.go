package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// yearly is a limit whose permits do not come back while a test lasts, and that counts in whole permits: those of a bucket which come
// back in another order than they were taken may lack some nanoseconds.
var yearly = weir.CalendarWindow(12, algo.Calendar{
	Unit: algo.CalendarYear, Month: 1 + (time.Now().UTC().Month()+5)%12, // which does not begin now
})

// stepKeys is how many keys there are for calls of several, and permitsOf how many permits of each of them.
const stepKeys = 3

type permitsOf [stepKeys]int64

// stepCall is what a call does to all of its keys at once, and stepState what is available of each key, and which of the takings whose
// outcome is not known have happened and were not undone at a key.
type stepCall struct {
	op  string
	n   permitsOf
	id  int // of one whose outcome is not known
	key int // of what is undone at one key, as that happens at one after the other
}

type stepState struct {
	available permitsOf
	taken     uint64
}

func (x stepState) has(n permitsOf) bool {
	for i := range n {
		if x.available[i] < n[i] {
			return false
		}
	}
	return true
}

func (x stepState) give(n permitsOf, sign int64) stepState {
	for i := range n {
		x.available[i] += sign * n[i]
	}
	return x
}

func stepModel(limit int64) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{stepState{available: permitsOf{limit, limit, limit}}} },
		Step: func(state, input, output any) []any {
			x, in, granted := state.(stepState), input.(stepCall), output.(bool) //nolint:forcetypeassert // as they were made
			switch in.op {
			case "take":
				if granted != x.has(in.n) {
					return nil
				}
				if granted {
					x = x.give(in.n, -1)
				}
				return []any{x}
			case "give":
				return []any{x.give(in.n, 1)}
			case "may take":
				if !x.has(in.n) {
					return []any{x}
				}
				y := x.give(in.n, -1)
				for key := range stepKeys {
					y.taken |= 1 << (in.id*stepKeys + key)
				}
				return []any{x, y}
			}
			bit := uint64(1) << (in.id*stepKeys + in.key) // "may be undone"
			if x.taken&bit == 0 {
				return []any{x}
			}
			y := x
			y.available[in.key] += in.n[in.key]
			y.taken &^= bit
			return []any{x, y}
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
	}).ToModel()
}

// stepPlay is a history.
type stepPlay struct {
	mu      sync.Mutex
	start   time.Time
	history []porcupine.Operation
	unknown int
}

func (p *stepPlay) now() int64 { return time.Since(p.start).Nanoseconds() }

func (p *stepPlay) note(client int, in stepCall, granted bool, began, ended int64) {
	p.history = append(p.history, porcupine.Operation{ClientId: client, Input: in, Output: granted, Call: began, Return: ended})
}

// take makes a call and notes what has become of it.
func (p *stepPlay) take(ctx context.Context, t *testing.T, client int, o *durable.Owner, ask store.Ask, charges []store.Charge, n permitsOf) (store.Hold, bool) {
	t.Helper()
	began := p.now()
	decisions := make([]weir.Decision, len(charges))
	h, err := o.Do(ctx, ask, charges, decisions)
	ended := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	granted := err == nil && decisions[store.Binding(decisions)].Allowed
	switch {
	case err == nil:
		p.note(client, stepCall{op: "take", n: n}, granted, began, ended)
	case ctx.Err() != nil: // what may have happened are clients of their own, as they have no end
		p.unknown++
		p.note(1000*p.unknown, stepCall{op: "may take", n: n, id: p.unknown}, false, began, forever)
		for key := range stepKeys {
			p.note(1000*p.unknown+1+key, stepCall{op: "may be undone", n: n, id: p.unknown, key: key}, false, began, forever)
		}
	default:
		t.Error(err)
	}
	return h, granted
}

// client makes some calls of two or three keys.
func (p *stepPlay) client(t *testing.T, client, calls int, o *durable.Owner, rng *rand.Rand) {
	t.Helper()
	for range calls {
		var n permitsOf
		var ask store.Ask
		var charges []store.Charge
		for _, key := range rng.Perm(stepKeys)[:2+rng.IntN(2)] {
			n[key] = 1 + rng.Int64N(3)
			charges = append(charges, store.Charge{Policy: "p", Key: fmt.Sprint(key), Limit: yearly, N: n[key]})
		}
		p.mu.Lock()
		leaves := p.unknown < 5 && rng.IntN(6) == 0
		p.mu.Unlock()
		if leaves {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(300))*time.Microsecond)
			p.take(ctx, t, client, o, ask, charges, n)
			cancel()
			continue
		}
		if rng.IntN(2) == 0 {
			ask.Hold = time.Hour
		}
		held, granted := p.take(context.Background(), t, client, o, ask, charges, n)
		if !granted || ask.Hold == 0 {
			continue
		}
		began := p.now()
		if err := o.Settle(context.Background(), held, nil); err != nil {
			t.Error(err)
		}
		ended := p.now()
		p.mu.Lock()
		p.note(client, stepCall{op: "give", n: n}, true, began, ended)
		p.mu.Unlock()
	}
}

// TestDurableStepsLinearizable: calls of several keys, of which some go away, take from all of them at one instant, or from none.
func TestDurableStepsLinearizable(t *testing.T) {
	rounds, undecided, seed := durableRounds(100), 0, rand.Uint64()
	for round := 0; round-undecided < rounds; round++ {
		rng := rand.New(rand.NewPCG(seed+uint64(round), 0))
		m := lasting(time.Duration(rng.IntN(2)) * 50 * time.Microsecond)
		e := m.Engine()
		options := durable.OwnerOptions{Reserve: []int64{1, 3, 0}[rng.IntN(3)], WriteTimeout: time.Minute}
		o := must(durable.NewOwner(must(e.Campaign(t.Context(), "here")), options))
		p := &stepPlay{start: time.Now()}
		var clients sync.WaitGroup
		for i := range 4 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			clients.Go(func() { p.client(t, i, 7, o, own) })
		}
		clients.Wait()
		if err := o.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		_ = e.Close()
		switch result := porcupine.CheckOperationsTimeout(stepModel(12), p.history, 3*time.Second); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			if undecided++; undecided > mostUndecided {
				t.Fatalf("%d histories could not be decided", undecided)
			}
		default:
			t.Fatalf("seed %d: %v: %d operations:\n%v", seed+uint64(round), result, len(p.history), p.history)
		}
	}
	t.Logf("%d of %d histories could not be decided", undecided, rounds)
}
