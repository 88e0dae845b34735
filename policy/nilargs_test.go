package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestNilIsToldAtTheCall: a constructor or function that needs what it is not given says so at once, by an error or a panic that
// names it, and not by a nil dereference, now or later.
func TestNilIsToldAtTheCall(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewEngine(&policy.Set{}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"NewEngine":     func() error { _, err := policy.NewEngine(nil, policy.EngineOptions{}); return err },
		"NewRefusalLog": func() error { _, err := policy.NewRefusalLog(policy.RefusalLogOptions{}); return err },
		"Engine.Load":   func() error { _, err := engine.Load(nil); return err },
		"Engine.Wait": func() error {
			return engine.Wait(nil, new(policy.Request), new(policy.Verdict)) //nolint:staticcheck // what is tested
		},
	} {
		if got := toldOf(call); !strings.HasPrefix(got, "weir: ") || strings.Contains(got, "invalid memory address") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// toldOf is the error of a call, or what it panics with.
func toldOf(call func() error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	if err := call(); err != nil {
		return err.Error()
	}
	return ""
}
