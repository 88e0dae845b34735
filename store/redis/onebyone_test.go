//go:build !race

package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestBatchAsOneByOne decides the same random requests in batches and one by one: the replies and the records are the same.
func TestBatchAsOneByOne(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl")
	batched, single := server.open(Options{Prefix: "batched:"}), server.open(Options{Prefix: "single:"})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for _, f := range families() {
		now := 1_790_000_000_000_000 + r.Int64N(1e15)
		limits := f.limits
		for round := range 30 {
			now += r.Int64N(int64(f.scale) / 1000)
			var requests [2][]*request
			var asked []string
			for range 1 + r.IntN(maxBatch) {
				now += r.Int64N(20)
				if r.IntN(30) == 0 {
					now -= r.Int64N(guardTime)
				}
				l := limits[r.IntN(len(limits))]
				if r.IntN(4) > 0 {
					l = limits[0]
				}
				c := []store.Charge{{Policy: "p", Key: fmt.Sprint(f.name, r.IntN(3)), Limit: l, N: 1 + r.Int64N(min(limitOf(l), 4))}}
				op, extra, id := byte(opTake), int64(0), ""
				switch r.IntN(8) {
				case 0:
					op = opPeek
				case 1:
					op = opRefund
				case 2:
					op, extra, id = opReserve, 1000+r.Int64N(1e6), newID()
				case 3:
					if f.name != "concurrency" && f.name != "several" {
						op = opDebit
					}
				case 4: // the same key text is the same slot
					c = append(c, c[0])
					c[1].Policy = "q"
				}
				if op == opTake && l.Algorithm() == weir.AlgorithmConcurrency {
					op = opPeek
				}
				for i, s := range []*Store{batched, single} {
					s.virtual.Store(now)
					s.ahead.Store(now - time.Now().UnixMicro())
					requests[i] = append(requests[i], s.requested(t, op, extra, id, c...))
				}
				asked = append(asked, fmt.Sprint(op, c))
			}
			order, singly := slices.Clone(requests[0]), slices.Clone(requests[1])
			group(order)
			for i, r := range order {
				singly[i] = requests[1][slices.Index(requests[0], r)]
			}
			requests[0], requests[1] = order, singly
			got := batched.together(t, requests[0]...)
			for i, request := range requests[1] {
				if want := single.together(t, request)[0]; got[i] != want {
					t.Fatalf("seed %d, %s, round %d, request %d of %v:\n got %q\nwant %q", seed, f.name, round, i, asked, got[i], want)
				}
			}
			for i := range 3 {
				for _, policy := range []string{"p", "q"} {
					c := store.Charge{Policy: policy, Key: fmt.Sprint(f.name, i)}
					// All but until when it is kept: a record that is written less often is kept for less longer than it has to be.
					a := server.ask("GETRANGE", batched.key(&c, kindRecord), "0", "-9")
					b := server.ask("GETRANGE", single.key(&c, kindRecord), "0", "-9")
					if a != b {
						t.Fatalf("seed %d, %s, round %d: the record of %s is\n%q and\n%q", seed, f.name, round, c.Key, a, b)
					}
				}
			}
		}
	}
}
