//go:build !race

package match

import (
	"math/rand/v2"
	"testing"
)

func TestIndexIsTheReference(t *testing.T) {
	found, deeper := 0, 0
	for seed := range uint64(70) {
		w := world{rand.New(rand.NewPCG(seed, 1)), seed%10 == 0}
		rules := make([]written, 1+w.IntN(120))
		if w.dense {
			rules = make([]written, 500)
		}
		for i := range rules {
			rules[i] = w.match()
		}
		x, err := newIndex(rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range x.buckets {
			if b.deeper != nil {
				deeper++
			}
		}
		for range 20 {
			r := w.request()
			found += compareWithReference(t, x, rules, &r)
			r.Path = w.path() // the same View again
			found += compareWithReference(t, x, rules, &r)
		}
	}
	if found < 1000 || deeper < 10 {
		t.Fatalf("only %d rules matched, and rules were filed twice %d times: the test tests little", found, deeper)
	}
}
