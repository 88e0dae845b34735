package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/policy"
)

// tagging is a server that tags what is beyond so many calls, by a policy of this name, and messages beyond so many by another.
func tagging(t *testing.T, name string, calls, messages int64) grpclimit.ServerOptions {
	burst := func(n int64) []policy.Limit {
		return []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), n)}}
	}
	use := func(policyName, protocol string) policy.Rule {
		return policy.Rule{
			Name: policyName, Match: policy.Match{Protocols: []string{protocol}}, Limits: []policy.Use{{Policy: policyName}},
		}
	}
	return grpclimit.ServerOptions{MessageCost: grpclimit.Each(1), Engine: engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: name, Mode: policy.ModeTag, Limits: burst(calls)},
			{Name: name + "-messages", Mode: policy.ModeTag, Limits: burst(messages)},
		},
		Rules: []policy.Rule{use(name, grpclimit.ProtocolCall), use(name+"-messages", grpclimit.ProtocolMessage)},
	}, policy.EngineOptions{})}
}

// TestOver: a handler learns which policies in ModeTag its call is over, by two servers of which one is inside the other, and
// its client does not.
func TestOver(t *testing.T) {
	var got []string
	s := &service{unary: func(ctx context.Context) error {
		got = grpclimit.Over(ctx)
		return nil
	}}
	c := setup{service: s, server: limited(t, tagging(t, "outer", 1, 9), tagging(t, "inner", 2, 9))}.dial(t)
	for i, want := range [][]string{nil, {"outer"}, {"inner", "outer"}} {
		if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil || !slices.Equal(got, want) {
			t.Errorf("call %d: over %q, want %q: %v", i, got, want, err)
		}
	}
}

// TestOverOfMessages: the context of a stream tells which policies the message is over that was received last.
func TestOverOfMessages(t *testing.T) {
	var got [][]string
	s := &service{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
		for {
			if _, err := stream.Recv(); errors.Is(err, io.EOF) {
				return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{})
			} else if err != nil {
				return err
			}
			got = append(got, grpclimit.Over(stream.Context()))
		}
	}}
	c := setup{service: s, server: limited(t, tagging(t, "outer", 1, 3), tagging(t, "inner", 9, 5))}.dial(t)
	for range 2 {
		stream, err := c.StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := stream.Send(&testgrpc.StreamingInputCallRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := stream.CloseAndRecv(); err != nil {
			t.Fatal(err)
		}
	}
	want := [][]string{
		nil, nil, nil,
		{"outer-messages", "outer"},
		{"outer-messages", "outer"},
		{"inner-messages", "outer-messages", "outer"},
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("over %q\nwant %q", got, want)
	}
}
