package weirprom_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/weirprom"
)

// numbered is a struct of T whose counts are 1, 2, 3 and so on, each so many times, also those in structs that it points to.
func numbered[T any](times int) T {
	var r T
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for _, f := range v.Fields() {
			switch f.Kind() {
			case reflect.Uint64:
				n++
				f.SetUint(uint64(n * times))
			case reflect.Int64:
				n++
				f.SetInt(int64(n * times))
			case reflect.Pointer:
				f.Set(reflect.New(f.Type().Elem()))
				fill(f.Elem())
			default: // names, and what is no count
			}
		}
	}
	fill(reflect.ValueOf(&r).Elem())
	return r
}

// TestOthersAreTheSum: every count of policies and rules beyond those with names is in the sum, once.
func TestOthersAreTheSum(t *testing.T) {
	policyOf := func(name string, times int) policy.PolicyReport {
		p := numbered[policy.PolicyReport](times)
		p.Name = name
		return p
	}
	ruleOf := func(name string, times int) policy.RuleReport {
		r := numbered[policy.RuleReport](times)
		r.Name = name
		return r
	}
	var many policy.Report
	for i := range weirprom.MaxNames {
		many.Policies = append(many.Policies, policy.PolicyReport{Name: fmt.Sprint(i)})
		many.Rules = append(many.Rules, policy.RuleReport{Name: fmt.Sprint(i)})
	}
	many.Policies = append(many.Policies, policyOf("a", 1), policyOf("b", 10))
	many.Rules = append(many.Rules, ruleOf("a", 1), ruleOf("b", 10))
	one := policy.Report{Policies: []policy.PolicyReport{policyOf("sum", 11)}, Rules: []policy.RuleReport{ruleOf("sum", 11)}}

	got := values(t, pedantic(t, weirprom.NewEngine(func() policy.Report { return many })))
	compared := 0
	for name, want := range values(t, pedantic(t, weirprom.NewEngine(func() policy.Report { return one }))) {
		if !strings.Contains(name, "=sum") || strings.HasPrefix(name, "weir_policy_info{") {
			continue // others have no one mode, and no one place where their limits are kept
		}
		compared++
		other := strings.Replace(name, "=sum", "="+weirprom.Other, 1)
		if value, ok := got[other]; !ok || value != want || want == 0 {
			t.Errorf("%s is %v (%t), not %v", other, value, ok, want)
		}
	}
	if compared < 20 {
		t.Errorf("%d metrics were compared", compared)
	}
}

// TestDifferencesDoNotGoBack: what is computed of several counts is held at its highest, as a counter must not go back.
func TestDifferencesDoNotGoBack(t *testing.T) {
	const granted = "weir_requests_total{result=allowed}"
	r := policy.Report{Requests: 1000}
	g := pedantic(t, weirprom.NewEngine(func() policy.Report { return r }))
	for _, c := range []struct {
		requests, refused uint64
		want              float64
	}{{1000, 0, 1000}, {1000, 10, 1000}, {1005, 10, 1000}, {1020, 10, 1010}} {
		r.Requests, r.Refused = c.requests, c.refused
		if got := values(t, g)[granted]; got != c.want {
			t.Errorf("%+v: %s is %v", c, granted, got)
		}
	}
}

// TestSeveralEnginesOfOneProgram: a label tells their metrics apart.
func TestSeveralEnginesOfOneProgram(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		engine, err := policy.NewEngine(&policy.Set{}, policy.EngineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		labeled := prometheus.WrapRegistererWith(prometheus.Labels{"engine": name}, registry)
		if err := labeled.Register(weirprom.NewEngine(engine.Report)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// TestNilFunctionPanicsAtOnce: and says of what, where the first scrape would have panicked.
func TestNilFunctionPanicsAtOnce(t *testing.T) {
	for want, collector := range map[string]func() *weirprom.Collector{
		"engine":         func() *weirprom.Collector { return weirprom.NewEngine(nil) },
		`limiter "x"`:    func() *weirprom.Collector { return weirprom.NewLimiter("x", nil) },
		`limiter "y"`:    func() *weirprom.Collector { return weirprom.NewKeyed("y", nil) },
		`gate "x"`:       func() *weirprom.Collector { return weirprom.NewGate("x", nil) },
		`tiers "x"`:      func() *weirprom.Collector { return weirprom.NewTiers("x", nil) },
		`dispatcher "x"`: func() *weirprom.Collector { return weirprom.NewDispatcher("x", nil) },
		`store "x"`:      func() *weirprom.Collector { return weirprom.NewFleet("x", nil) },
		`cluster "x"`:    func() *weirprom.Collector { return weirprom.NewNode("x", nil) },
		`guard "x"`:      func() *weirprom.Collector { return weirprom.NewGuard("x", nil) },
		`shedder "x"`:    func() *weirprom.Collector { return weirprom.NewShedder("x", nil) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "the function of the "+want+" is nil") {
					t.Errorf("%s: %s", want, said)
				}
			}()
			collector()
		}()
	}
}
