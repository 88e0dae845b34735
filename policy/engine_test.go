package policy_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

func perHour(n int64) weir.Limit {
	return weir.Limit{Rate: weir.Rate{Permits: 1, Period: time.Hour}, Burst: n}
}

func engine(t testing.TB, set *policy.Set, changes ...func(*policy.EngineOptions)) *policy.Engine {
	t.Helper()
	o := policy.EngineOptions{Clock: weir.NewManualClock(1)}
	for _, change := range changes {
		change(&o)
	}
	e, err := policy.NewEngine(set, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func take(e *policy.Engine, r policy.Request) *policy.Verdict {
	v := new(policy.Verdict)
	e.Take(&r, v)
	return v
}

func TestEngineSmoke(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "a", Limits: []policy.Limit{{Limit: perHour(2)}}, Key: policy.MethodText()}},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "a"}}}},
	})
	for i := range 3 {
		v := take(e, policy.Request{Method: "GET"})
		if v.Allowed != (i < 2) {
			t.Errorf("%d: %+v", i, v.Decision())
		}
	}
	t.Logf("%+v", e.Explain(&policy.Request{Method: "GET"}))
	t.Logf("%+v", e.Report())
}
