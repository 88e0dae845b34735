package rlqsapi_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
)

// wire is the codec of a client that sends bytes as they are.
type wire struct{ encoding.CodecV2 }

func (w wire) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return w.CodecV2.Marshal(v)
}

// TestMutatedReports sends 10,000 reports of which some bytes were changed, over many streams: whatever the server makes of them, it
// allows no bucket everything, and never assigns more than the limit in all.
func TestMutatedReports(t *testing.T) {
	const limit = 1000
	set := one(limited(weir.TokenBucket(weir.PerSecond(limit), limit)))
	set.Rules[0].Match.Paths = nil // or buckets of other names have no limit
	s := serve(t, set)
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire{encoding.GetCodecV2("proto")})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	good, err := proto.Marshal(usage(id, 5*time.Second, 100, 20))
	if err != nil {
		t.Fatal(err)
	}
	mutated := func() []byte {
		b := slices.Clone(good)
		for range 1 + r.IntN(3) {
			switch at := r.IntN(len(b)); r.IntN(5) {
			case 0:
				b[at] = byte(r.Uint32())
			case 1:
				b[at] ^= 1 << r.IntN(8)
			case 2:
				b = slices.Insert(b, at, byte(r.Uint32()))
			case 3:
				b = append(b[:at:at], b[min(len(b), at+1+r.IntN(4)):]...)
			case 4:
				b = append(b, good...)
			}
			if len(b) == 0 {
				b = append(b, 0)
			}
		}
		return b
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	sent, streams, assigned := 0, 0, map[string]float64{}
	for sent < 10_000 {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas")
		if err != nil {
			t.Fatal(err)
		}
		streams++
		for range 20 {
			sent++
			if stream.SendMsg(mutated()) != nil {
				break // it has ended for what was sent
			}
		}
		_ = stream.CloseSend()
		for {
			m := new(ratelimitquotav3.RateLimitQuotaResponse)
			if stream.RecvMsg(m) != nil {
				break
			}
			for _, a := range m.GetBucketAction() {
				if a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetStrategy() == nil {
					continue // it is abandoned
				}
				if x, ok := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetStrategy().(*typev3.RateLimitStrategy_BlanketRule_); ok &&
					x.BlanketRule == typev3.RateLimitStrategy_ALLOW_ALL {
					t.Fatalf("everything is allowed: %v", a)
				}
				assigned[fmt.Sprint(streams, a.GetBucketId().GetBucket())] = rate(t, a)
			}
		}
		total := 0.0
		for rate := range maps.Values(assigned) {
			total += rate
		}
		if total > limit {
			t.Fatalf("after %d reports of %d streams %v of %d/s are assigned", sent, streams, total, limit)
		}
		if streams%50 == 0 { // all assignments have expired
			s.clock.Advance(time.Hour)
			clear(assigned)
		}
	}
	t.Logf("%d streams", streams)
}
