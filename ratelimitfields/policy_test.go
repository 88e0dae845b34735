package ratelimitfields_test

import (
	"strings"
	"testing"

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
