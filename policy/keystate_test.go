package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

func key(t testing.TB, e *policy.Engine, key string) policy.KeyState {
	t.Helper()
	k, err := e.Key(t.Context(), "login", key)
	if err != nil {
		t.Fatal(err)
	}
	if k.Policy != "login" || k.Key != key || !k.Named || k.ID == "" {
		t.Errorf("%+v", k)
	}
	return k
}

func TestKey(t *testing.T) {
	clock := manualclock.New(0)
	e := engine(t, login(func(p *policy.Policy) {
		p.Limits = []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1), 5), Name: "a"}, {Limit: perHour(100), Name: "b"}}
		p.Keys = map[string][]policy.Limit{ben: {{Limit: perHour(7)}, {Limit: perHour(8)}}}
		p.Lockout = &policy.Lockout{Refusals: 3, Within: time.Minute, For: time.Hour}
	}), manual(clock))
	k := key(t, e, ann)
	if len(k.Limits) != 2 || k.Limits[0].Limit != "a" || k.Limits[0].Holds != "1/s, burst 5" || k.Limits[0].Tracked ||
		k.Limits[0].Decision != (weir.Decision{Allowed: true, Limit: 5, Remaining: 5, Policy: "login/a"}) ||
		k.Limits[1].Holds != "1/h, burst 100" || k.Override != nil || k.LockedFor != 0 || k.RecentRefusals != 0 {
		t.Errorf("a new key: %+v", k)
	}
	if n := e.Report().Policies[0].Keys; n != 0 {
		t.Errorf("asking has made %d keys", n)
	}
	if k = key(t, e, ben); k.Limits[0].Holds != "1/h, burst 7" || k.Limits[1].Decision.Remaining != 8 {
		t.Errorf("a key of its own limits: %+v", k)
	}
	wantTakes(t, e, ben, 1, 1)
	if k = key(t, e, ben); k.Limits[0].Holds != "1/h, burst 7" || k.Limits[1].Decision.Remaining != 7 || !k.Limits[1].Tracked {
		t.Errorf("a key of its own limits: %+v", k)
	}
	wantTakes(t, e, ann, 7, 5)
	k = key(t, e, ann)
	a, b := k.Limits[0], k.Limits[1]
	if !a.Tracked || a.Decision.Allowed || a.Decision.Reason != weir.ReasonLimited || a.Decision.RetryAfter != time.Second ||
		a.Decision.ResetAfter != 5*time.Second || a.Refused != 2 || b.Decision.Remaining != 95 || !b.Decision.Allowed ||
		k.RecentRefusals != 2 || k.LockedFor != 0 {
		t.Errorf("after refusals: %+v", k)
	}
	clock.Advance(61 * time.Second)
	if k = key(t, e, ann); k.RecentRefusals != 0 {
		t.Errorf("refusals that do not count any more: %+v", k)
	}
	wantTakes(t, e, ann, 9, 5)
	if k = key(t, e, ann); k.LockedFor != time.Hour || k.RecentRefusals != 0 {
		t.Errorf("locked out: %+v", k)
	}
	mustOverride(t, e, policy.Override{
		Policy: "login", Key: ann, For: time.Minute, Limits: []policy.Limit{{Limit: perHour(50)}, {Limit: perHour(60)}},
	})
	k = key(t, e, ann)
	if k.Override == nil || k.Override.For != time.Minute || k.Limits[1].Holds != "1/h, burst 60" || k.Limits[1].Decision.Limit != 60 {
		t.Errorf("overridden: %+v", k)
	}
	mustOverride(t, e, policy.Override{Policy: "login", Key: ann, For: time.Minute, Unlimited: true})
	if k = key(t, e, ann); k.Limits[0].Holds != "unlimited" || !k.Limits[0].Decision.Allowed {
		t.Errorf("unlimited: %+v", k)
	}
	_, err := e.Key(t.Context(), "logon", ann)
	if _, ok := errors.AsType[*weir.OptionError](err); !ok {
		t.Errorf("no such policy: %v", err)
	}
}

// TestKeyThatFindsNoRoom: nothing is taken of such a key, and it is refused nevertheless.
func TestKeyThatFindsNoRoom(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) { p.Limits, p.MaxKeys = one(perHour(3)), 1 }))
	wantTakes(t, e, ann, 1, 1)
	r := request(ben)
	want := take(e, r).Decision()
	if want.Reason != weir.ReasonTableFull {
		t.Fatalf("%+v", want)
	}
	want.Remaining = 3
	if l := key(t, e, ben).Limits[0]; l.Tracked || l.Decision != want {
		t.Errorf("%+v, want %+v", l, want)
	}
}

// TestKeyOfAFullConcurrencyLimit: the next request is refused, though it is not known for how long.
func TestKeyOfAFullConcurrencyLimit(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) { p.Limits = one(weir.AtOnce(2)) }))
	var v policy.Verdict
	for taken := range 2 {
		if d := key(t, e, ann).Limits[0].Decision; !d.Allowed || d.Reason != weir.ReasonNone {
			t.Errorf("%d taken of 2: %+v", taken, d)
		}
		if !reserveKey(t.Context(), e, "login", ann, 1, &v) {
			t.Fatalf("%d taken of 2: %+v", taken, v)
		}
	}
	if d := key(t, e, ann).Limits[0].Decision; d.Allowed || d.Reason != weir.ReasonLimited || d.Remaining != 0 {
		t.Errorf("all taken: %+v", d)
	}
	if top, err := e.Top(t.Context(), "login", 1); err != nil || len(top) != 1 || top[0].Limits[0].Decision.Allowed {
		t.Errorf("all taken: %+v, %v", top, err)
	}
}

func TestKeyThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, login(func(p *policy.Policy) {
			p.QueueLimit, p.MaxWait = 9, time.Minute
			p.Limits = one(weir.TokenBucket(weir.PerSecond(1), 0))
		}), func(o *policy.EngineOptions) { o.Clock = nil })
		wantTakes(t, e, ben, 1, 1) // before the others: of keys that are new at the same moment, one may get no name
		for range 3 {
			go func() {
				var v policy.Verdict
				r := request(ann)
				_ = e.Wait(context.Background(), &r, &v)
			}()
		}
		synctest.Wait()
		if k := key(t, e, ann); k.Limits[0].Queued != 2 || k.Limits[0].Waiters != 2 {
			t.Errorf("%+v", k)
		}
		if p := e.Report().Policies[0]; p.Queued != 2 || p.Waiters != 2 {
			t.Errorf("%+v", p)
		}
		top, err := e.Top(t.Context(), "login", 9)
		if err != nil || len(top) != 2 || top[0].Key != ann || top[0].Limits[0].Waiters != 2 || top[1].Key != ben {
			t.Errorf("%+v, %v", top, err)
		}
		time.Sleep(time.Minute)
	})
}

func names(all []policy.KeyState) (keys []string) {
	for i := range all {
		keys = append(keys, all[i].Key)
	}
	return keys
}

func TestTop(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) {
		p.Limits = []policy.Limit{{Limit: perHour(10), Name: "a"}, {Limit: perHour(100), Name: "b"}}
		p.Lockout = &policy.Lockout{Refusals: 5, Within: time.Minute, For: time.Hour}
	}))
	if all, err := e.Top(t.Context(), "login", 5); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for client, n := range map[string]int{
		"192.0.2.1": 3, "192.0.2.2": 12, "192.0.2.3": 13, "192.0.2.4": 15, "192.0.2.5": 3, "192.0.2.6": 10,
	} {
		takes(e, client, n)
	}
	all, err := e.Top(t.Context(), "login", 9)
	want := []string{"192.0.2.4", "192.0.2.3", "192.0.2.2", "192.0.2.6", "192.0.2.1", "192.0.2.5"}
	if err != nil || !slices.Equal(names(all), want) {
		t.Fatalf("%v, %v, want %v", names(all), err, want)
	}
	if k := all[0]; k.LockedFor != time.Hour || len(k.Limits) != 1 || k.Limits[0].Limit != "a" || k.Limits[0].Decision.Remaining != 0 {
		t.Errorf("the first: %+v", k)
	}
	if k := all[1]; k.Limits[0].Refused != 3 || k.RecentRefusals != 3 {
		t.Errorf("the second: %+v", k)
	}
	for _, n := range []int{0, 1, 2, 3, 4, 6} { // the fifth and the sixth are under the same pressure
		if all, err = e.Top(t.Context(), "login", n); err != nil || !slices.Equal(names(all), want[:n]) {
			t.Errorf("the first %d: %v, %v", n, names(all), err)
		}
	}
	for _, n := range []int{-1, 10_001} {
		if _, err = e.Top(t.Context(), "login", n); err == nil {
			t.Errorf("the first %d", n)
		}
		if _, err = e.Locked("login", n); err == nil {
			t.Errorf("the first %d that are locked out", n)
		}
	}
	if _, err = e.Top(t.Context(), "logon", 1); err == nil {
		t.Error("of no policy")
	}
}

// TestTopOfSeveralLimits: a key is listed once, with the limit that it has used the most of, whether its name is known or not.
func TestTopOfSeveralLimits(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) {
		p.Limits = []policy.Limit{{Name: "few", Limit: perHour(10)}, {Name: "many", Limit: perHour(1000)}}
	}))
	var v policy.Verdict
	const keys = 3000 // more than there are names
	for i := range keys {
		takeKey(context.Background(), e, "login", fmt.Sprint("key ", i), int64(1+i%9), &v)
	}
	all, err := e.Top(t.Context(), "login", 10_000)
	if err != nil || len(all) != keys {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	seen, unnamed := map[string]bool{}, 0
	for i := range all {
		k := &all[i]
		if seen[k.ID] || len(k.Limits) != 1 || k.Limits[0].Limit != "few" {
			t.Fatalf("%+v", k)
		}
		seen[k.ID] = true
		if !k.Named {
			unnamed++
		}
	}
	if unnamed < 1000 {
		t.Errorf("%d without a name", unnamed)
	}
}

func TestLocked(t *testing.T) {
	clock := manualclock.New(0)
	lockout := func(d time.Duration) *policy.Lockout {
		return &policy.Lockout{Refusals: 1, Within: time.Minute, For: d}
	}
	e := engine(t, &policy.Set{Policies: []policy.Policy{
		{Name: "short", Limits: one(perHour(1)), Lockout: lockout(time.Minute), Key: policy.ClientIP()},
		{Name: "long", Limits: one(perHour(1)), Lockout: lockout(time.Hour), Key: policy.ClientIP()},
		{Name: "none", Limits: one(perHour(100))},
	}, Rules: []policy.Rule{
		{Name: "s", Match: policy.Match{Paths: []string{"/s"}}, Limits: uses("short", "none")},
		{Name: "l", Match: policy.Match{Paths: []string{"/l"}}, Limits: uses("long")},
	}}, manual(clock))
	var v policy.Verdict
	for _, c := range []struct{ client, path string }{{ann, "/s"}, {ben, "/s"}, {ann, "/l"}} {
		r := request(c.client)
		r.Path = c.path
		e.Take(&r, &v)
		e.Take(&r, &v)
		clock.Advance(time.Second)
	}
	want := []policy.LockedKey{
		{Policy: "long", Key: ann, For: time.Hour - time.Second},
		{Policy: "short", Key: ben, For: time.Minute - 2*time.Second},
		{Policy: "short", Key: ann, For: time.Minute - 3*time.Second},
	}
	check := func(name string, n int, want []policy.LockedKey) {
		t.Helper()
		if all, err := e.Locked(name, n); err != nil || !slices.Equal(all, want) {
			t.Errorf("%q: %+v, %v, want %+v", name, all, err, want)
		}
	}
	check("", 9, want)
	check("", 2, want[:2])
	check("short", 9, want[1:])
	check("short", 1, want[1:2])
	check("none", 9, nil)
	if _, err := e.Locked("other", 9); err == nil {
		t.Error("of no policy")
	}
	e.Unlock("short", ben)
	check("short", 9, want[2:])
	clock.Advance(time.Minute)
	check("short", 9, nil)
}

// TestLockedNamesAreBounded: the last 4096 are kept, and noting one more allocates nothing.
func TestLockedNamesAreBounded(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) {
		p.Lockout = &policy.Lockout{Refusals: 1, Within: time.Minute, For: time.Hour}
		p.Key = policy.HeaderText("X")
	}))
	var v policy.Verdict
	lock := func(key string) {
		r := request(ann)
		r.Header = header{key}
		r.Cost = 2
		e.Take(&r, &v)
		e.Take(&r, &v)
	}
	lock(strings.Repeat("x", 257))
	for i := range 5000 {
		lock(fmt.Sprint(i))
	}
	all, err := e.Locked("", 10_000)
	if err != nil || len(all) != 4096 {
		t.Fatalf("%d, %v", len(all), err)
	}
	for i := range all {
		if len(all[i].Key) < 3 || len(all[i].Key) == 3 && all[i].Key < "904" {
			t.Errorf("%+v is still there", all[i])
		}
	}
	if n := e.Report().Policies[0].Locked; n != 5001 {
		t.Errorf("%d are locked out", n)
	}
}

// header has one value for all fields.
type header []string

func (h header) Values(string) []string { return h }

func TestKeyAndTopOfStoredLimits(t *testing.T) {
	clock := manualclock.New(0)
	s := memory(t, clock)
	set := login(func(p *policy.Policy) {
		p.Consistency = policy.ConsistencyCoherent
		p.Keys = map[string][]policy.Limit{ben: one(perHour(1))}
	})
	e := over(t, s, clock, set)
	if k := key(t, e, ann); k.Limits[0].Tracked || k.Limits[0].Holds != "1/h, burst 2" || k.Limits[0].Decision.Remaining != 2 {
		t.Errorf("%+v", k)
	}
	takes(e, ann, 4)
	takes(e, ben, 9)
	takes(e, "192.0.2.3", 1)
	k := key(t, e, ann)
	if !k.Limits[0].Tracked || k.Limits[0].Decision.Remaining != 0 || k.Limits[0].Refused != 2 {
		t.Errorf("%+v", k)
	}
	all, err := e.Top(t.Context(), "login", 9)
	if err != nil || !slices.Equal(names(all), []string{ben, ann}) || all[0].Limits[0].Holds != "1/h, burst 1" || all[0].ID == "" {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err = e.Top(t.Context(), "login", 1); err != nil || len(all) != 1 || all[0].Key != ben {
		t.Errorf("%+v, %v", all, err)
	}
	s.fail = func() error { return errors.New("gone") }
	if err = s.Close(); err != nil {
		t.Error(err)
	}
	if _, err = e.Key(t.Context(), "login", ann); err == nil {
		t.Error("no error of a store that was closed")
	}
	if _, err = e.Top(t.Context(), "login", 9); err == nil {
		t.Error("no error of a store that was closed")
	}
}
