package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
		"NewStreamPeer": func() { durable.NewStreamPeer(nil) },
		"Node.Serve":    func() { _ = node.Serve(t.Context(), nil) },
		"Node.Do":       func() { _, _ = node.Do(none, store.Ask{}, nil, nil) },
		"Node.Settle":   func() { _ = node.Settle(none, store.Hold{}, nil) },
		"Owner.Do":      func() { _, _ = new(durable.Owner).Do(none, store.Ask{}, nil, nil) },
		"Owner.Settle":  func() { _ = new(durable.Owner).Settle(none, store.Hold{}, nil) },
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

// TestZeroKeyedSaysHowItIsMade at each call.
func TestZeroKeyedSaysHowItIsMade(t *testing.T) {
	k, ctx := new(durable.Keyed), t.Context()
	for name, call := range map[string]func(){
		"Allow":   func() { k.Allow("a") },
		"Take":    func() { k.Take("a", 1) },
		"Wait":    func() { _ = k.Wait(ctx, "a", 1) },
		"Reserve": func() { _, _ = k.Reserve(ctx, "a", 1, time.Second) },
		"Commit":  func() { _ = k.Commit(ctx, store.Hold{}, 1) },
		"Cancel":  func() { _ = k.Cancel(ctx, store.Hold{}) },
		"Peek":    func() { k.Peek("a", 1) },
		"Refund":  func() { _ = k.Refund(ctx, "a", 1) },
		"Reset":   func() { _ = k.Reset(ctx, "a") },
		"Close":   func() { _ = k.Close() },
	} {
		for range 2 {
			if got := panicOf(call); got != "weir: durable: zero Keyed: make it by OpenKeyed" {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}
