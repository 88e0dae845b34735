package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/durable/etcd"
)

// TestNilIsToldAtTheCall: a constructor or function that needs what it is not given says so at once, by an error or a panic that
// names it, and not by a nil dereference, now or later.
func TestNilIsToldAtTheCall(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() error{
		"New":   func() error { _, err := etcd.New(nil, etcd.Options{}); return err },
		"Start": func() error { _, err := etcd.Start(nil, etcd.EmbeddedOptions{}); return err }, //nolint:staticcheck // what is tested
		"Join":  func() error { _, err := etcd.Join(nil, etcd.ClusterOptions{}); return err },   //nolint:staticcheck // what is tested
	} {
		if got := toldOf(call); !strings.HasPrefix(got, "weir: ") || strings.Contains(got, "invalid memory address") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestZeroValuesSayHowTheyAreMade: what was not made by its constructor panics with a message that names it.
func TestZeroValuesSayHowTheyAreMade(t *testing.T) {
	t.Parallel()
	server, engine := new(etcd.Server), new(etcd.Engine)
	for name, call := range map[string]func() error{
		"Client":       func() error { server.Client(); return nil },
		"Failed":       func() error { server.Failed(); return nil },
		"Err":          server.Err,
		"Members":      func() error { _, err := server.Members(t.Context()); return err },
		"RemoveMember": func() error { return server.RemoveMember(t.Context(), "a") },
		"AddMember":    func() error { return server.AddMember(t.Context(), "a", "http://127.0.0.1:1") },
		"Close":        server.Close,
	} {
		if got := toldOf(call); got != "weir: etcd: zero Server: make it by Start" {
			t.Errorf("Server.%s: %q", name, got)
		}
	}
	for name, call := range map[string]func() error{
		"Campaign": func() error { _, err := engine.Campaign(t.Context(), "a"); return err },
		"Watch":    func() error { _, err := engine.Watch(t.Context()); return err },
		"Close":    engine.Close,
	} {
		if got := toldOf(call); got != "weir: etcd: zero Engine: make it by New" {
			t.Errorf("Engine.%s: %q", name, got)
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
