package httplimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// TestNilIsToldAtTheCall: a constructor or function that needs what it is not given says so at once, by an error or a panic that
// names it, and not by a nil dereference, now or later.
func TestNilIsToldAtTheCall(t *testing.T) {
	t.Parallel()
	var none *weir.Limiter
	for name, call := range map[string]func() error{
		"New":         func() error { _, err := httplimit.New(httplimit.Options{}); return err },
		"New pointer": func() error { _, err := httplimit.New(httplimit.Options{Limiter: none}); return err },
		"NewGate":     func() error { _, err := httplimit.NewGate(httplimit.GateOptions{}); return err },
		"NewMux":      func() error { _, err := httplimit.NewMux(httplimit.MuxOptions{}); return err },
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
