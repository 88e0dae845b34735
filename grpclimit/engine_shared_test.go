package grpclimit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
	"github.com/weirhq/weir/store"
)

// canceling is a store whose caller goes away while it is asked.
type canceling struct {
	store.Home

	cancel context.CancelFunc
}

func (c *canceling) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if c.cancel == nil || ask.Mode != store.ModeTake {
		return c.Home.Do(ctx, ask, charges, decisions)
	}
	c.cancel()
	<-ctx.Done() // the store sees it, as the call has handed its context on
	return store.Hold{}, ctx.Err()
}

// TestSharedLimitsOfCalls: they are told like others, unless they were not asked, and a call that goes away meanwhile is none
// that was refused.
func TestSharedLimitsOfCalls(t *testing.T) {
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &canceling{Home: m}
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "shared", Limits: []policy.Limit{perHour(100)}, Consistency: policy.ConsistencyCoherent},
			{Name: "local", Limits: []policy.Limit{perHour(2)}},
		},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "shared"}, {Policy: "local"}}}},
	}, policy.EngineOptions{Store: s})
	refused := 0
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Engine: e, Headers: &ratelimitfields.Headers{}, OnRefused: func(context.Context, *grpclimit.Refusal) { refused++ },
	})}.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	want(t, call(ctx, client), codes.Canceled)
	s.cancel = nil
	for deadline := time.Now().Add(2 * time.Minute); e.Report().Canceled == 0; { // the client does not wait for the server
		if time.Now().After(deadline) {
			t.Fatal("the call was not counted")
		}
		time.Sleep(time.Millisecond)
	}
	for i, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		var header, trailer metadata.MD
		want(t, call(t.Context(), client, grpc.Header(&header), grpc.Trailer(&trailer)), code)
		told := slices.Concat(header["ratelimit"], trailer["ratelimit"])
		if len(told) != 1 || strings.Contains(told[0], `"shared"`) != (i < 2) {
			t.Errorf("%d: %q", i, told)
		}
	}
	if refused != 1 {
		t.Errorf("%d were refused", refused)
	}
}
