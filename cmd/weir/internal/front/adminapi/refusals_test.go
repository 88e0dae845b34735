package adminapi_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

func newLog(t testing.TB, clock weir.Clock) *adminapi.Refusals {
	t.Helper()
	l, err := adminapi.NewRefusals(clock)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func refused(key string) *policy.Verdict {
	const name = "login"
	p := &policy.Policy{
		Name: name, Source: "weir.yaml:3:3",
		Limits: []policy.Limit{{Name: "1m", Limit: weir.TokenBucket(weir.PerMinute(5), 0)}, {Name: "1h", Limit: weir.TokenBucket(weir.PerHour(9), 0)}},
	}
	rule := &policy.Rule{Name: "sign-in", Source: "weir.yaml:9:5"}
	return &policy.Verdict{Binding: 1, Parts: []policy.Part{
		{Policy: p, Limit: 0, Rule: rule, Key: []byte(key), Cost: 2, Decision: weir.Decision{Allowed: true, Limit: 5, Remaining: 3, Policy: name + "/1m"}},
		{Policy: p, Limit: 1, Rule: rule, Key: []byte(key), Cost: 2, Decision: weir.Decision{
			Reason: weir.ReasonLimited, Limit: 9, RetryAfter: 90 * time.Second, ResetAfter: time.Hour, Policy: name + "/1h",
		}},
	}}
}

// TestWhatIsKept of a refusal: the request, the rule, the key and the numbers of that moment.
func TestWhatIsKept(t *testing.T) {
	l := newLog(t, nil)
	l.SetVersion(7)
	id := l.Refused([]*policy.Request{{
		Protocol: "http", Method: "POST", Host: "example.com", Path: "/login", Client: netip.MustParseAddr("192.0.2.1"),
	}}, refused("192.0.2.1"))
	text := answer.FormatRefusal(id)
	if back, ok := answer.ParseRefusal(text); len(text) != 16 || !ok || back != id {
		t.Errorf("%s", text)
	}
	got, ok := l.Find(id)
	if !ok {
		t.Fatal("it is not there")
	}
	if got.ID != text || got.Protocol != "http" || got.Method != http.MethodPost || got.Host != "example.com" || got.Path != "/login" ||
		got.Client != "192.0.2.1" || got.Reason != "limited" || got.RetryAfter != 90 || got.Version != 7 || len(got.Limits) != 2 ||
		got.Binding != 0 || time.Since(got.Time) > time.Hour {
		t.Errorf("%+v", got)
	}
	if b := got.Limits[0]; b.Policy != "login" || b.Limit != "1h" || b.Holds != "9/h, burst 9" || b.Rule != "sign-in" ||
		b.Source != "weir.yaml:9:5" || b.Key != "192.0.2.1" || b.Cost != 2 || b.Allowed || b.Max != 9 || b.Remaining != 0 || b.Reason != "limited" ||
		b.RetryAfter != 90 || b.ResetAfter != 3600 {
		t.Errorf("%+v", b)
	}
	if o := got.Limits[1]; o.Limit != "1m" || !o.Allowed || o.Max != 5 || o.Remaining != 3 || o.RetryAfter != 0 {
		t.Errorf("%+v", o)
	}
	if _, ok := l.Find(id + 1); ok {
		t.Error("an ID that was never given")
	}
	v := refused("k")
	v.Parts[0].Unasked = true
	if got, _ = l.Find(l.Refused(nil, v)); got.Limits[0].Unasked || !got.Limits[1].Unasked {
		t.Errorf("%+v", got.Limits)
	}
}

// TestChecks have no path and no rule.
func TestChecks(t *testing.T) {
	l := newLog(t, nil)
	r := policy.Request{Named: &policy.Named{Policy: []byte("login"), Key: []byte("k"), Cost: 1}, Context: t.Context()}
	v := refused("k")
	v.Parts[0].Rule, v.Parts[1].Rule = nil, nil
	got, _ := l.Find(l.Refused([]*policy.Request{&r}, v))
	if got.Protocol != "check" || got.Path != "" || got.Limits[0].Rule != "" || got.Limits[0].Source != "weir.yaml:3:3" {
		t.Errorf("%+v", got)
	}
	if got, _ = l.Find(l.Refused(nil, v)); got.Protocol != "" || got.Limits[0].Key != "k" {
		t.Errorf("%+v", got)
	}
	if got, _ = l.Find(l.Refused(nil, &policy.Verdict{Binding: -1})); got.Binding != -1 || len(got.Limits) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestBounds: memory is fixed whatever clients send, and the last refusals are kept.
func TestBounds(t *testing.T) {
	l := newLog(t, manualclock.New(0))
	long := strings.Repeat("x", 100_000)
	v := refused(long)
	for range 20 {
		v.Parts = append(v.Parts, v.Parts[0])
	}
	id := l.Refused([]*policy.Request{{Method: long, Host: long, Path: "/" + long, Protocol: long}}, v)
	got, ok := l.Find(id)
	if !ok || len(got.Limits) != 8 || len(got.Path) > 256 || len(got.Limits[0].Key) < 1024 || got.Limits[0].Policy != "login" {
		t.Errorf("%d limits, %d bytes of path, %d of key", len(got.Limits), len(got.Path), len(got.Limits[0].Key))
	}
	for i := range adminapi.MostRefusals {
		l.Refused(nil, refused(fmt.Sprint(i)))
	}
	if _, ok := l.Find(id); ok {
		t.Error("the oldest is still there")
	}
	all := l.Last(adminapi.RefusalQuery{Most: 1 << 20})
	if len(all.Refusals) != adminapi.MostRefusals || all.Refusals[0].Limits[0].Key != fmt.Sprint(adminapi.MostRefusals-1) || all.Kept != adminapi.MostRefusals+1 ||
		!all.Oldest.Equal(all.Refusals[adminapi.MostRefusals-1].Time) {
		t.Errorf("%d, %d kept", len(all.Refusals), all.Kept)
	}
	name, key := "login", "17"
	if one := l.Last(adminapi.RefusalQuery{Policy: &name, Keys: []string{key}, Most: 5}); len(one.Refusals) != 1 {
		t.Errorf("%d of one key", len(one.Refusals))
	}
	name = "other"
	if none := l.Last(adminapi.RefusalQuery{Policy: &name, Most: 5}); len(none.Refusals) != 0 {
		t.Errorf("%d of another policy", len(none.Refusals))
	}
	if since, last := l.Since(0, 3); len(since) != 3 || last != adminapi.MostRefusals+1 || since[2].Limits[0].Key != fmt.Sprint(adminapi.MostRefusals-1) {
		t.Errorf("%d since", len(since))
	}
}

// TestTooMany refusals in a second are counted, and nothing else.
func TestTooMany(t *testing.T) {
	clock := manualclock.New(0)
	l, v := newLog(t, clock), refused("k")
	for i := range 10_100 {
		if id := l.Refused(nil, v); (id == 0) != (i >= 10_000) {
			t.Fatalf("refusal %d has the ID %d", i, id)
		}
	}
	if kept, missed := l.Counts(); kept != 10_000 || missed != 100 {
		t.Errorf("%d, %d", kept, missed)
	}
	clock.Advance(time.Millisecond)
	if l.Refused(nil, v) == 0 {
		t.Error("later nothing is noted either")
	}
}

// TestRefusalsContention: refusals that are noted at the same time are all found as they were.
func TestRefusalsContention(t *testing.T) {
	l := newLog(t, nil)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 1000 {
				key := fmt.Sprintf("%d-%d", g, i)
				id := l.Refused(nil, refused(key))
				if got, ok := l.Find(id); id != 0 && ok && (got.Limits[0].Key != key || got.Limits[1].Key != key) {
					t.Errorf("%s: %+v", key, got)
				}
				if i%100 == 0 {
					l.Last(adminapi.RefusalQuery{Most: 50})
				}
			}
		})
	}
	group.Wait()
}

// TestNothingIsAllocated for a refusal once the memory is there.
func TestNothingIsAllocated(t *testing.T) {
	l := newLog(t, manualclock.New(0))
	v, requests := refused("192.0.2.1"), []*policy.Request{{Method: "POST", Path: "/login"}}
	for range adminapi.MostRefusals {
		l.Refused(requests, v)
	}
	if n := testing.AllocsPerRun(100, func() { l.Refused(requests, v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRefused(b *testing.B) {
	clock := manualclock.New(0)
	l, v, requests := newLog(b, clock), refused("192.0.2.1"), []*policy.Request{{Method: "POST", Path: "/login"}}
	b.ReportAllocs()
	for b.Loop() {
		clock.Advance(time.Millisecond)
		l.Refused(requests, v)
	}
}
