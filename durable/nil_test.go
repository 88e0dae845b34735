package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// TestNothingGivenFailsAtTheCall: what is nil is an error or a panic of the call, and never of a goroutine, which would end the
// process.
func TestNothingGivenFailsAtTheCall(t *testing.T) {
	if o, err := durable.NewOwner(nil, durable.OwnerOptions{}); o != nil || !isOptionError(err) {
		t.Errorf("NewOwner(nil): %v", err)
	}
	if n, err := durable.NewNode(durable.NodeOptions{Address: "a"}); n != nil || !isOptionError(err) {
		t.Errorf("NewNode without an engine: %v", err)
	}
	node := new(durable.Node)
	var none context.Context
	for name, call := range map[string]func(){
		"NewStore":      func() { durable.NewStore(nil) },
		"NewStreamPeer": func() { durable.NewStreamPeer(nil) },
		"Node.Serve":    func() { _ = node.Serve(t.Context(), nil) },
		"Node.Acquire":  func() { node.Acquire(none, durable.Request{}) },
		"Node.Call":     func() { node.Call(none, nil) },
		"Owner.Acquire": func() { new(durable.Owner).Acquire(none, durable.Request{}) },
		"Owner.Call":    func() { new(durable.Owner).Call(none, nil) },
		"Store.Take":    func() { _ = store.Take(none, durable.NewStore(node), nil, nil) },
	} {
		if got := panicOf(call); !strings.HasPrefix(got, "weir: durable: ") || !strings.Contains(got, "nil") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func isOptionError(err error) bool {
	_, ok := errors.AsType[*weir.OptionError](err)
	return ok
}

// panicOf is what f panics with.
func panicOf(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}
