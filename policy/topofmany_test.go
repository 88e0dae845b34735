//go:build !race

package policy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestTopOfManyKeys has more keys than there are names.
func TestTopOfManyKeys(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) { p.Limits = one(perHour(10)) }))
	var v policy.Verdict
	for range 20 {
		takeKey(context.Background(), e, "login", "worst", 10, &v)
	}
	for i := range 20_000 {
		takeKey(context.Background(), e, "login", fmt.Sprint("key ", i), int64(1+i%7), &v)
	}
	all, err := e.Top(t.Context(), "login", 10_000)
	if err != nil || len(all) != 10_000 || all[0].Key != "worst" || all[0].Limits[0].Refused != 19 {
		t.Fatalf("%d keys, %v, the first %+v", len(all), err, all[0])
	}
	seen, named := map[string]bool{}, 0
	for i := range all {
		k := &all[i]
		if seen[k.ID] || k.Named != (k.Key != "") {
			t.Fatalf("%+v", k)
		}
		seen[k.ID] = true
		if k.Named {
			named++
		}
		if i > 0 && k.Limits[0].Decision.Remaining < all[i-1].Limits[0].Decision.Remaining {
			t.Fatalf("%+v is before %+v", all[i-1], k)
		}
	}
	if named < 400 || named > 1024 {
		t.Errorf("%d names", named)
	}
}
