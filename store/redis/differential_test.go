//go:build !race

package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// history is a random history of one key in the script and in the reference, which has a record for each algorithm.
type history struct {
	store  *Store
	family family
	random *rand.Rand
	key    string
	now    int64
	limit  weir.Limit
	refs   [limits.Algorithms]reference
	out    []store.Hold
	lent   []store.Hold
	counts map[string]int
	trace  []string // the last calls
}

// of is the record of the algorithm of a limit.
func (h *history) of(l weir.Limit) *reference { return &h.refs[l.Algorithm()] }

const stepsOfHistory = 400

// step makes one call and returns how the two differ, or "".
func (h *history) step() (wrong string) {
	r := h.random
	var what string
	switch k := r.IntN(100); {
	case k < 60:
		h.now += r.Int64N(int64(h.family.scale)/1000 + 1)
	case k < 75:
	case k < 90:
		h.now += r.Int64N(20)
	case k < 94:
		h.now += r.Int64N(10 * int64(h.family.scale) / 1000)
	case k < 98:
		h.now -= r.Int64N(guardTime)
	default:
		h.now -= r.Int64N(5 * int64(h.family.scale) / 1000)
	}
	changes := r.IntN(25) == 0
	if changes {
		h.limit = h.family.limits[r.IntN(len(h.family.limits))]
	}
	ref := h.of(h.limit)
	h.store.virtual.Store(h.now)
	defer func(before int64) {
		h.trace = append(h.trace, fmt.Sprintf("%d: %s of %v; last %d, %d reserved", h.now, what, h.limit, before, len(ref.held)))
		h.trace = h.trace[max(0, len(h.trace)-6):]
	}(ref.last)
	ctx := context.Background()
	most := limitOf(h.limit)
	n := r.Int64N(min(most, 4) + 1)
	switch r.IntN(10) {
	case 0:
		n = r.Int64N(min(most, h.family.most)) + 1
	case 1:
		if most <= h.family.most { // package algo gives nothing back whose cost at another rate does not fit
			n = min(most+1, 1e15)
		}
	}
	c := store.Charge{Policy: "p", Key: h.key, Limit: h.limit, N: n}
	charges := []store.Charge{c}
	decisions := make([]weir.Decision, 1)
	lends := h.limit.Algorithm() != weir.AlgorithmConcurrency
	ops := 14
	if changes { // a Peek would not keep the change
		if ops = 10; !lends {
			ops = 8
		}
	}
	var want weir.Decision
	switch k := r.IntN(ops); {
	case k >= 8 && k < 10 && lends && r.IntN(2) == 0:
		what = fmt.Sprintf("debit %d", n)
		h.counts["debit"]++
		if err := store.Debit(ctx, h.store, charges, decisions); err != nil {
			return err.Error()
		}
		charges[0].N = 0
		want = ref.debit(h.now, c)
	case k >= 8 && k < 10 && lends:
		c.N = max(c.N, 1)
		least := 1 + r.Int64N(min(c.N, 5))
		what = fmt.Sprintf("lend %d, at least %d", c.N, least)
		got, d, err := store.Lend(ctx, h.store, c, least)
		if err != nil {
			return err.Error()
		}
		lent, taken, wanted := ref.lend(h.now, c, least)
		if got.Lent() != lent || lent > 0 && (got.Taken != taken*microsecond || got.Charges[0].Limit != c.Limit) {
			return fmt.Sprintf("%s: got %+v, want %d lent at %d", what, got, lent, taken)
		}
		if lent > 0 {
			h.lent = append(h.lent, got)
			h.counts["lend"]++
		}
		decisions[0], want = d, wanted
	case k >= 12 && len(h.lent) > 0:
		i := r.IntN(len(h.lent))
		if r.IntN(2) == 0 {
			i = len(h.lent) - 1
		}
		l := h.lent[i]
		h.lent = append(h.lent[:i], h.lent[i+1:]...)
		back := r.Int64N(l.Lent() + 1)
		what = fmt.Sprintf("return %d of what was lent of %v at %d", back, l.Charges[0].Limit, l.Taken/microsecond)
		h.counts["return"]++
		if err := store.Return(ctx, h.store, l, back); err != nil {
			return err.Error()
		}
		h.of(l.Charges[0].Limit).takeBack(h.now, l.Charges[0].Limit, l.Taken/microsecond, back)
		return ""
	case k < 3 && h.limit.Algorithm() != weir.AlgorithmConcurrency:
		what = fmt.Sprintf("take %d", n)
		if err := store.Take(ctx, h.store, charges, decisions); err != nil {
			return err.Error()
		}
		want, _ = ref.decide(opTake, h.now, c, "", 0)
	case k < 6:
		life := r.Int64N(5*int64(h.family.scale)/1000) + 1000
		life = min(life, int64(store.MostExpiry)/1000)
		what = fmt.Sprintf("reserve %d for %d", n, life)
		got, err := store.Reserve(ctx, h.store, charges, decisions, time.Duration(life)*time.Microsecond)
		if err != nil {
			return err.Error()
		}
		var expires int64
		want, expires = ref.decide(opReserve, h.now, c, got.ID, life)
		if got.Expires != expires*1000 {
			return fmt.Sprintf("reservation expires at %d, want %d", got.Expires/1000, expires)
		}
		if got.ID != "" {
			h.out = append(h.out, got)
		}
	case k < 7 && len(h.out) > 0:
		i := r.IntN(len(h.out))
		res := h.out[i]
		h.out = append(h.out[:i], h.out[i+1:]...)
		if at := &res.Charges[0].Limit; at.Algorithm() == h.limit.Algorithm() {
			*at = h.limit
		}
		actual := int64(-1)
		var err error
		if r.IntN(2) == 0 {
			actual = r.Int64N(2*res.Charges[0].N + 2)
			if r.IntN(8) == 0 {
				actual += r.Int64N(min(3*most, 1e14))
			}
			actual = min(actual, 1e15)
			err = store.Commit(ctx, h.store, res, []int64{actual})
		} else {
			err = store.Cancel(ctx, h.store, res)
		}
		what = fmt.Sprintf("settle as %d", actual)
		found := h.of(res.Charges[0].Limit).settle(h.now, res.Charges[0].Limit, res.ID, actual)
		h.counts["settle"]++
		if err != nil && !errors.Is(err, store.ErrNotReserved) || (err == nil) != found {
			return fmt.Sprintf("settle as %d: %v, want found %t", actual, err, found)
		}
		return ""
	case k < 8:
		what = fmt.Sprintf("refund %d", n)
		h.counts["refund"]++
		if r.IntN(3) > 0 && !changes {
			what = "nothing"
			return ""
		}
		if err := store.Refund(ctx, h.store, charges); err != nil {
			return err.Error()
		}
		ref.refund(h.now, h.limit, n)
		return ""
	default:
		what = fmt.Sprintf("peek %d", n)
		if err := store.Peek(ctx, h.store, charges, decisions); err != nil {
			return err.Error()
		}
		want, _ = ref.decide(opPeek, h.now, c, "", 0)
	}
	h.counts["decided"]++
	if want.Allowed {
		h.counts["allowed"]++
	}
	if decisions[0] != want {
		return fmt.Sprintf("%s of %v:\n got %+v\nwant %+v", what, h.limit, decisions[0], want)
	}
	return ""
}

// TestDifferential compares the script with package algo in microseconds, on random histories of every algorithm with
// limits that change and clocks that jump: 80,000 steps, or as many as WEIR_STEPS says.
func TestDifferential(t *testing.T) {
	t.Parallel()
	steps := int64(80_000)
	if text := os.Getenv("WEIR_STEPS"); text != "" {
		steps = must(strconv.ParseInt(text, 10, 64))
	}
	if testing.Short() {
		steps /= 10
	}
	base := startServer(t, "--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl").open(Options{Timeout: time.Minute})
	all := families()
	var next, made atomic.Int64
	var wait sync.WaitGroup
	var lock sync.Mutex
	counts := map[string]int{}
	seed := uint64(time.Now().UnixNano())
	for range 128 {
		wait.Go(func() {
			local := map[string]int{}
			s := &Store{options: base.options, dispatch: base.dispatch}
			for made.Load() < steps && !t.Failed() {
				i := uint64(next.Add(1))
				f := all[i%uint64(len(all))]
				h := history{
					store: s, family: f, random: rand.New(rand.NewPCG(seed, i)), key: strconv.FormatUint(i, 10),
					now: 1_790_000_000_000_000, counts: local,
				}
				h.now += h.random.Int64N(1e15)
				h.limit = f.limits[h.random.IntN(len(f.limits))]
				for k := range stepsOfHistory {
					if wrong := h.step(); wrong != "" {
						t.Errorf("seed %d, history %d of %s, step %d: %s\nthe last calls:\n%s", seed, i, f.name, k, wrong, strings.Join(h.trace, "\n"))
						return
					}
				}
				const million = 1_000_000
				if n := made.Add(stepsOfHistory); n/million > (n-stepsOfHistory)/million {
					t.Logf("%d million steps agree", n/million)
				}
				if err := store.Reset(context.Background(), s, "p", h.key); err != nil {
					t.Error(err)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			for what, n := range local {
				counts[what] += n
			}
		})
	}
	wait.Wait()
	t.Logf("%d steps agree: %v", made.Load(), counts)
}
