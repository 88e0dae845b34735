package ratelimitfields_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/ratelimitfields"
)

func TestPoliciesThatCannotBeTold(t *testing.T) {
	for want, all := range map[string][]ratelimitfields.Policy{
		"Policies is empty":                     {},
		`Policies[0].Name "a\r\nSet-Cookie: x"`: {{Name: "a\r\nSet-Cookie: x"}},
		`Policies[1].Name "ä"`:                  {{Name: "a"}, {Name: "ä"}},
		`Policies[0].Unit "a\nb"`:               {{Unit: "a\nb"}},
		"Policies[0].Quota is -1":               {{Quota: -1}},
		"Policies[0].Window is -1ns":            {{Window: -1}},
		"Policies[0].PartitionKey is 1025":      {{PartitionKey: make([]byte, 1025)}},
		`Policies[1].Name is "default"`:         {{}, {Name: "default"}},
	} {
		_, err := ratelimitfields.NewPolicies(all...)
		if err == nil || !strings.HasPrefix(err.Error(), "weir: ratelimitfields") || !strings.Contains(err.Error(), want) {
			t.Errorf("NewPolicies(%v): %v, want one about %s", all, err, want)
		}
	}
}

// TestPolicyOf: a limit is told with its window, as far as that has a length, and with what it counts.
func TestPolicyOf(t *testing.T) {
	for _, want := range []ratelimitfields.Policy{
		{Quota: 20, Window: 2 * time.Second, Unit: ratelimitfields.Requests, Limit: weir.TokenBucket(weir.PerSecond(10), 20)},
		{Quota: 7, Window: time.Minute, Unit: ratelimitfields.Requests, Limit: weir.FixedWindow(weir.PerMinute(7))},
		{Quota: 9, Unit: ratelimitfields.Requests, Limit: weir.CalendarWindow(9, weir.Month(time.UTC))},
		{Quota: 4, Unit: ratelimitfields.ConcurrentRequests, Limit: weir.AtOnce(4)},
	} {
		want.Name = "a"
		if got := ratelimitfields.PolicyOf("a", want.Limit); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, want %+v", want.Limit, got, want)
		}
	}
}
