package checkapi_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/policy"
)

// TestExample: what a server tells people to try is answered by its limits.
func TestExample(t *testing.T) {
	named := func(names ...string) (all []policy.Policy) {
		for _, name := range names {
			all = append(all, policy.Policy{Name: name})
		}
		return all
	}
	const decide = `curl -i -d '{"method":"GET","path":"/","client":"192.0.2.1"}' http://h:1/v1/decide`
	for want, set := range map[string]*policy.Set{
		`curl -i -d '{"key":"alice"}' http://h:1/v1/check`: {Policies: named("a", "default")},
		`curl -i -d '{"policy":"it\u0027s \"a\"","key":"alice"}' http://h:1/v1/check`: {
			Policies: named(`it's "a"`, "b"),
		},
		decide: {Policies: named("default"), Rules: make([]policy.Rule, 1)},
	} {
		if got := checkapi.Example("h:1", set); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := checkapi.Example("h:1", &policy.Set{}); got != decide {
		t.Error(got)
	}
}
