package etcd_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// TestLeaveInTurns: three nodes end one after the other, soon even where no majority is left, and again all at once, and none takes that
// for an error. Started again they are soon there.
func TestLeaveInTurns(t *testing.T) {
	t.Parallel()
	all := three(t)
	var log logged
	for i := range all {
		all[i].Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	granted := func(c *etcd.Cluster) {
		t.Helper()
		r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.PerSecond(1000), 100), N: 1, Wait: inTheEnd}
		a := spectest.Acquire(context.Background(), c.Node(), r)
		lost := func() bool { return a.Reason == weir.ReasonUnavailable || a.Reason == weir.ReasonClosed }
		for end := time.Now().Add(inTheEnd); lost() && time.Now().Before(end); {
			a = spectest.Acquire(context.Background(), c.Node(), r) // an owner may be lost where the machine stands still
		}
		if a.Reason != weir.ReasonNone {
			t.Errorf("%v %v", a.Reason, a.Err)
		}
	}
	left := func(what string, f func()) {
		t.Helper()
		begin := time.Now()
		f()
		if took := time.Since(begin); took > inTheEnd {
			t.Errorf("%s took %v", what, took)
		} else {
			t.Logf("%s took %v", what, took)
		}
	}
	var nodes []*etcd.Cluster
	left("the first start", func() { nodes = joinAll(t, all) })
	for _, c := range nodes {
		granted(c)
	}
	for _, c := range nodes {
		left("the end of one", func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	left("the second start", func() { nodes = joinAll(t, all) })
	for _, c := range nodes {
		granted(c)
	}
	left("the end of all", func() {
		done := make(chan error)
		for _, c := range nodes {
			go func() { done <- c.Close() }()
		}
		for range nodes {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	if text := log.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("errors were logged:\n%s", text)
	} else {
		t.Logf("%d warnings:\n%s", strings.Count(text, "\n"), text)
	}
}
