//go:build !race

package policy_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

func TestTooManyOverrides(t *testing.T) {
	const most = 1 << 16
	e := engine(t, login())
	o := policy.Override{Policy: "login", Unlimited: true, For: time.Hour}
	for i := range most {
		o.Key = fmt.Sprint(i)
		if err := e.Override(&o); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	o.Key = ann
	if err := e.Override(&o); !errors.Is(err, keyset.ErrTooManyOverrides) {
		t.Errorf("one more: %v", err)
	}
	if n := e.Report().Policies[0].Overridden; n != most {
		t.Errorf("the report has %d", n)
	}
	o.Key = "77"
	mustOverride(t, e, o)
	e.Restore("login", "5")
	o.Key = ann
	mustOverride(t, e, o)
	wantTakes(t, e, ann, 9, 9)
	all := e.Overrides()
	if len(all) != most || all[0].Key != "0" || all[1].Key != "1" || all[2].Key != "10" {
		t.Errorf("%d of them, first %+v", len(all), all[0])
	}
}
