package algo_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
)

// TestTableLawIsTheAlgorithm compares what takes in place with algo.TokenBucket on the same history.
func TestTableLawIsTheAlgorithm(t *testing.T) {
	t.Parallel()

	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(3, seed))
		permits, period := 1+r.Int64N(1<<(1+seed%30)), time.Duration(1+r.Int64N(1<<(20+seed%30)))
		burst := 1 + r.Int64N(1<<(1+seed%40))

		b, err := algo.NewTokenBucket(permits, period, burst)
		if err != nil {
			continue // such a bucket would take too long to fill
		}

		for _, narrow := range []bool{false, true} {
			law := b.TableLaw(narrow)
			if law.Words() == 2 && b.FillTime() > 1<<58 {
				continue // two words do not reach so far
			}

			now := r.Int64N(1 << 40)
			words, state := make([]uint64, law.Words()), algo.TokenBucketState{Last: now}
			law.Begin(words, now, 0)

			for step := 0; step < 500 && now < 1<<58; step++ {
				now += r.Int64N(1 + int64(b.FillTime())>>r.IntN(20))
				n := 1 + r.Int64N(1+burst>>r.IntN(12))

				for _, n := range []int64{0, n, burst, burst + 1} {
					if got, want := law.Peek(words, now, n), b.Peek(state, now, n); got != want {
						t.Fatalf("%+v, step %d at %d: peek of %d permits: %+v, want %+v", b, step, now, n, got, want)
					}
				}

				other := slices.Clone(words)
				got := law.Take(words, now, n)
				next, want := b.Take(state, now, n)

				if n <= burst {
					decided := algo.Result{Mark: got.Mark}
					decided.Allowed, decided.Remaining, decided.RetryAfter, decided.ResetAfter = law.Decide(other, now, n, true)
					if decided != want || got.Allowed && !slices.Equal(other, words) {
						t.Fatalf("%+v, step %d at %d: %d permits: decided %+v, want %+v", b, step, now, n, decided, want)
					}
				}

				if state = next; got != want {
					t.Fatalf("%+v, step %d at %d: %d permits: %+v, want %+v", b, step, now, n, got, want)
				}

				if n > 1 {
					next, want = b.Take(state, now, 1)
					if state = next; law.Grant(words, now) != want.Allowed {
						t.Fatalf("%+v, step %d at %d: one permit: not %v", b, step, now, want.Allowed)
					}
				}

				if f, g := law.FreshAt(words), b.FreshAt(state); f > now && f != g {
					t.Fatalf("%+v, step %d: fresh at %d, want %d", b, step, f, g)
				}

				switch r.IntN(20) {
				case 0:
					charged := law.Charge(words, now, n, burst)
					if state, want.Remaining = b.Charge(state, now, n, burst); charged != want.Remaining {
						t.Fatalf("%+v, step %d: %d charged, want %d", b, step, charged, want.Remaining)
					}
				case 1:
					law.Refund(words, now, n)
					state = b.Refund(state, now, n)
				case 2:
					law.Cancel(words, now, n, got.Mark)
					state = b.Cancel(state, now, n, got.Mark)
				default:
				}
			}
		}
	}
}

// TestLongBucketIsEmpty: a bucket that takes decades to fill is empty once everything was taken, in however few words it lies.
func TestLongBucketIsEmpty(t *testing.T) {
	t.Parallel()

	b, err := algo.NewTokenBucket(7, 240*time.Hour, 12_000)
	if err != nil {
		t.Fatal(err)
	}

	for _, law := range []algo.Law{b.Law(), b.TableLaw(false), b.TableLaw(true)} {
		words := make([]uint64, law.Words())
		law.Begin(words, 0, 0)

		if r := law.Take(words, 0, 12_000); !r.Allowed || r.Remaining != 0 {
			t.Fatalf("%d words: all permits: %+v", len(words), r)
		}

		if r := law.Take(words, 0, 1); r.Allowed || r.Remaining != 0 {
			t.Errorf("%d words: one more: %+v", len(words), r)
		}
	}
}
