//go:build !race

package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// rewrite has a store use the script with one text in place of another, which it must contain once.
func (s *Store) rewrite(tb testing.TB, old, text string) {
	tb.Helper()
	if strings.Count(s.dispatch.script, old) != 1 {
		tb.Fatalf("the script does not contain %q once", old)
	}
	s.dispatch.script = strings.Replace(s.dispatch.script, old, text, 1)
	s.name()
}

// name makes the digest that of the script.
func (s *Store) name() {
	sum := sha1.Sum([]byte(s.dispatch.script))
	s.dispatch.digest = hex.EncodeToString(sum[:])
}

// TestShortWays makes the same calls with the short ways of the script and without them: the decisions, the records and how long
// the server keeps them are the same, and each of them is taken.
func TestShortWays(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl")
	short, long := server.open(Options{Prefix: "short", Timeout: time.Minute}), server.open(Options{Prefix: "long", Timeout: time.Minute})
	expiries := regexp.MustCompile(`'PX',\s*(floor\(|px|expiry)`)
	for _, s := range []*Store{short, long} { // absolute ones can be compared
		s.dispatch.script = expiries.ReplaceAllString(s.dispatch.script, "'PXAT', 4000000000000 + $1")
		s.name()
	}
	const parse = "local function parse(h)" // where the short ways are behind it
	short.rewrite(t, parse, "redis.call('INCR', 'counted:' .. KEYS[1])\n"+parse)
	const inPlace = "call('SETRANGE', key, '26', state)"
	short.rewrite(t, inPlace, inPlace+"\nredis.call('INCR', 'in place')")
	long.rewrite(t, "if not KEYS[2] and byte(charge, 2) == 84", "if false")
	long.rewrite(t, "if op == TAKE then", "if false then")
	long.rewrite(t, "if op == TAKE and nk < 2 and not reply then", "if false then")
	long.rewrite(t, "if op >= DEBIT and not KEYS[2] then", "if false then")
	seed := uint64(time.Now().UnixNano())
	var wait sync.WaitGroup
	for i, f := range families() {
		if f.name == "concurrency" { // there is no short way
			continue
		}
		f.limits = slices.DeleteFunc(f.limits, func(l weir.Limit) bool { return l.Algorithm() == weir.AlgorithmConcurrency })
		wait.Go(func() {
			var made, slow atomic.Int64
			var callers sync.WaitGroup
			for k := range 6 {
				callers.Go(func() {
					w := ways{
						family: f, random: rand.New(rand.NewPCG(seed, uint64(100*i+k))),
						c: store.Charge{Policy: "p", Key: fmt.Sprint(f.name, k)},
					}
					for j, s := range []*Store{short, long} {
						w.stores[j] = &Store{options: s.options, dispatch: s.dispatch}
					}
					w.now = 1_790_000_000_000_000 + w.random.Int64N(1e15)
					w.c.Limit = f.limits[w.random.IntN(len(f.limits))]
					for step := range 250 {
						what, got, expires := w.step(t)
						if got[0] != got[1] || max(expires[0]-expires[1], expires[1]-expires[0]) > 1 { // Take rounds a millisecond
							t.Errorf("seed %d, %s %d, step %d: %s of %v at %d\nshort %s, %d\n long %s, %d",
								seed, f.name, k, step, what, w.c.Limit, w.now, got[0], expires[0], got[1], expires[1])
							return
						}
						made.Add(1)
					}
					key := "counted:" + w.stores[0].key(&w.c, kindRecord)
					n, _ := strconv.ParseInt(short.do(t, "GETRANGE", key, "0", "-1"), 10, 64)
					slow.Add(n)
				})
			}
			callers.Wait()
			t.Logf("%s: %d of %d calls took the long way", f.name, slow.Load(), made.Load())
			if slow.Load() > made.Load()*19/20 { // it is by chance how often a limit changes, after which all do for long
				t.Errorf("%s: nearly all calls took the long way", f.name)
			}
		})
	}
	wait.Wait()
	if short.do(t, "GETRANGE", "in place", "0", "-1") == "" {
		t.Error("no record of a bucket was changed in place by the shortest way")
	}
}

// ways is a history of one key in two stores.
type ways struct {
	stores [2]*Store
	family family
	random *rand.Rand
	now    int64
	c      store.Charge
	lent   []store.Hold
}

// change holds the key to another limit, mostly as a new one: the long way is taken for long after a limit has changed.
func (w *ways) change(t *testing.T, reset bool) {
	t.Helper()
	w.c.Limit = w.family.limits[w.random.IntN(len(w.family.limits))]
	for _, s := range w.stores {
		if !reset {
			break
		}
		if err := store.Reset(context.Background(), s, w.c.Policy, w.c.Key); err != nil {
			t.Error(err)
		}
	}
}

// step makes one call of both stores, and returns all that can be seen of it, and until when the server keeps the record.
func (w *ways) step(t *testing.T) (what string, got [2]string, expires [2]int64) {
	t.Helper()
	r, ctx := w.random, context.Background()
	switch k := r.IntN(100); {
	case k < 60:
		w.now += r.Int64N(int64(w.family.scale)/4000 + 1)
	case k < 97:
		w.now += r.Int64N(20)
	default:
		w.now -= r.Int64N(guardTime / 2)
	}
	if r.IntN(40) == 0 {
		w.change(t, r.IntN(8) > 0)
	}
	most := limitOf(w.c.Limit)
	w.c.N = 1 + r.Int64N(min(most, 4))
	if r.IntN(4) == 0 {
		w.c.N = 1 + r.Int64N(min(most, w.family.most))
	}
	least, life := 1+r.Int64N(min(w.c.N, 5)), time.Duration(1000+r.Int64N(5000))*time.Microsecond
	op := r.IntN(100)
	var back store.Hold
	if op >= 70 && len(w.lent) > 0 {
		at := len(w.lent) - 1
		if r.IntN(2) == 0 {
			at = r.IntN(len(w.lent))
		}
		back = w.lent[at]
		w.lent = append(w.lent[:at], w.lent[at+1:]...)
	}
	unspent := r.Int64N(back.Lent() + 1)
	knows := r.IntN(10) > 0
	refunded := w.c.N
	if len(w.lent) > 0 { // a part of what may be returned as well
		refunded = 1 + r.Int64N(min(most, w.lent[len(w.lent)-1].Lent()))
	}
	for j, s := range w.stores {
		s.virtual.Store(w.now)
		if knows { // otherwise the edges of calendars are those of another time
			s.ahead.Store(w.now - time.Now().UnixMicro())
		}
		charges, d := []store.Charge{w.c}, make([]weir.Decision, 1)
		var loan store.Hold
		var err error
		switch {
		case op < 20:
			what = fmt.Sprint("take ", w.c.N)
			err = store.Take(ctx, s, charges, d)
		case op < 22:
			what = fmt.Sprintf("reserve %d for %v", w.c.N, life)
			_, err = store.Reserve(ctx, s, charges, d, life)
		case op < 28:
			what = fmt.Sprint("refund ", refunded)
			charges[0].N = refunded
			err = store.Refund(ctx, s, charges)
		case op < 45:
			what = fmt.Sprint("debit ", w.c.N)
			err = store.Debit(ctx, s, charges, d)
		case op < 70 || back.Lent() == 0:
			what = fmt.Sprintf("lend %d, at least %d", w.c.N, least)
			loan, d[0], err = store.Lend(ctx, s, w.c, least)
			if j == 0 && loan.Lent() > 0 {
				w.lent = append(w.lent, loan)
			}
		default:
			what = fmt.Sprintf("return %d of %+v", unspent, back)
			err = store.Return(ctx, s, back, unspent)
		}
		if err != nil {
			t.Error(what, err)
		}
		key := s.key(&w.c, kindRecord)
		record := s.do(t, "GETRANGE", key, "0", "-1") // empty if there is none
		expires[j], _ = strconv.ParseInt(s.do(t, "PEXPIRETIME", key), 10, 64)
		got[j] = fmt.Sprintf("%+v %+v, record %q", d[0], loan, record)
	}
	return what, got, expires
}
