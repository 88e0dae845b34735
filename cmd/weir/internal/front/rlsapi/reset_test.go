package rlsapi_test

import (
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
	"github.com/weirhq/weir/store"
)

const resets = `
domain: edge
descriptors:
  - {key: zero, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 3}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 3}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: days, rate_limit: {unit: day, unit_multiplier: 2, requests_per_unit: 3}}
  - {key: bucket, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: token_bucket}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0, algorithm: sliding_window}}
`

// TestResetIsWhenAWindowEnds: of a window the reset is when it ends, also where nothing of it is used or the descriptor costs more than
// the window ever has, wherever it is counted. A client that is refused is never told to come back at once.
func TestResetIsWhenAWindowEnds(t *testing.T) {
	for _, consistency := range []policy.Consistency{policy.ConsistencyLocal, policy.ConsistencyCoherent} {
		config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(resets)}}, ratelimitconfig.Options{
			Consistency: consistency,
		})
		if err != nil {
			t.Fatal(err)
		}
		clock := manualclock.New(time.Date(2030, 1, 1, 18, 0, 0, 0, time.UTC).UnixNano()) // a Tuesday
		memory, err := store.NewMemory(store.MemoryOptions{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = memory.Close() })
		_, conn := serve(t, rlsapi.Options{
			Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Clock: clock, Store: memory}),
			Tree:   func() *ratelimitconfig.Config { return config }, Clock: clock,
			Fields: ratelimitfields.NoFields, LimitFields: []string{"limit", "remaining", "reset"},
		})
		for _, c := range []struct {
			key    string
			hits   uint64
			want   string
			resets int64
		}{
			{"zero", 1, "over: over/0", 6 * 3600},
			{"day", 0, "ok: ok/3", 6 * 3600},
			{"day", 5, "over: over/0", 6 * 3600},
			{"week", 0, "ok: ok/3", 30 * 3600},
			{"month", 0, "ok: ok/3", (30*24 + 6) * 3600},
			{"month", 1, "ok: ok/2", (30*24 + 6) * 3600},
			{"watched", 0, "ok: ok/3", 3600},
			{"quota", 0, "ok: ok/3", 3600},
			{"second", 7, "over: over/0", 1},
			{"days", 0, "ok: ok/3", 48 * 3600},
			{"bucket", 0, "ok: ok/3", 0},
			{"bucket", 4, "over: over/0", 80}, // one is owed then
			{"none", 1, "over: over/0", 60},
		} {
			r := request("edge", []string{c.key, "v"})
			r.Descriptors[0].HitsAddend = wrapperspb.UInt64(c.hits)
			got := ask(t, conn, r)
			reset := got.GetStatuses()[0].GetDurationUntilReset().GetSeconds()
			if h := headersOf(got); brief(got) != c.want || reset != c.resets || h["reset"] != strconv.FormatInt(c.resets, 10) {
				t.Errorf("%v, %s, %d hits: %s, reset %d, %v, want %s, %d", consistency, c.key, c.hits, brief(got), reset, h, c.want, c.resets)
			}
		}
		// Several hits of a refused call are charged, and the reset is that of what is left.
		spent := request("edge", []string{"bucket", "spent"}, []string{"day", "spent"})
		spent.HitsAddend = 2
		for i, want := range []int64{40, 80} {
			got := ask(t, conn, spent)
			if s := got.GetStatuses(); s[0].GetDurationUntilReset().GetSeconds() != want || s[1].GetDurationUntilReset().GetSeconds() != 6*3600 {
				t.Errorf("%v: hits, call %d: %v, want a reset of %d", consistency, i, got, want)
			}
		}
		alone := request("edge", []string{"bucket", "alone"})
		alone.HitsAddend = 2
		ask(t, conn, alone)
		if got := ask(t, conn, alone); metadataOf(got)["retry_after"] != 60.0 {
			t.Errorf("%v: %v, want to retry after 60 seconds", consistency, got)
		}
		// Of a call that one descriptor refuses, the other is told its window.
		got := ask(t, conn, request("edge", []string{"zero", "v"}, []string{"day", "other"}))
		for i, s := range got.GetStatuses() {
			if s.GetDurationUntilReset().GetSeconds() != 6*3600 {
				t.Errorf("%v: descriptor %d: %v", consistency, i, s)
			}
		}
	}
}
