package quotashare_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

// told is a ledger, and what it has told each owner last.
type told struct {
	*quotashare.Ledger

	last map[any]quotashare.Assignment
	all  int
}

func newTold(t *testing.T, o quotashare.Options) *told {
	t.Helper()
	l := &told{last: map[any]quotashare.Assignment{}}
	o.Send = func(s *quotashare.Share, a quotashare.Assignment) { l.last[s.Owner] = a; l.all++ }
	l.Ledger = quotashare.New(o)
	return l
}

func (l *told) subscribe(t *testing.T, owner string, limit weir.Limit) *quotashare.Share {
	t.Helper()
	s, err := l.Subscribe(owner, []quotashare.Need{{Key: "k", Limit: limit}}, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTooManyShares(t *testing.T) {
	l := newTold(t, quotashare.Options{MostShares: 1})
	l.subscribe(t, "a", weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Second}, 1))
	if _, err := l.Subscribe("b", nil, false, 0); !errors.Is(err, quotashare.ErrTooMany) {
		t.Error(err)
	}
}

// TestOneProxyCannotHaveAllShares: what clients of one proxy make up leaves some to others, also while what ended has not expired.
func TestOneProxyCannotHaveAllShares(t *testing.T) {
	one, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	l := newTold(t, quotashare.Options{MostShares: 10, Proxy: func(owner any) netip.Prefix {
		proxy, _ := owner.(netip.Prefix)
		return proxy
	}})
	needs := []quotashare.Need{{Key: "k", Limit: weir.TokenBucket(weir.Rate{Permits: 100, Period: time.Second}, 100)}}
	var shares []*quotashare.Share
	for range 9 {
		s, err := l.Subscribe(one, needs, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		shares = append(shares, s)
	}
	for range 2 {
		if _, err := l.Subscribe(one, needs, false, 0); !errors.Is(err, quotashare.ErrProxy) || !errors.Is(err, quotashare.ErrTooMany) {
			t.Errorf("ten of one proxy: %v", err)
		}
		for _, s := range shares { // what they were assigned has not expired
			l.End(s, 0)
		}
	}
	if _, err := l.Subscribe(other, needs, false, 0); err != nil {
		t.Errorf("the first of another one: %v", err)
	}
	now := int64(5 * time.Minute)
	l.Tick(now)
	if _, err := l.Subscribe(one, needs, false, now); err != nil {
		t.Errorf("when all have expired: %v", err)
	}
}

// TestRatesOfAllSizes: nearly all of a limit is assigned to the only share, and never more, from a permit in some months to the
// fastest.
func TestRatesOfAllSizes(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.TokenBucket(weir.Rate{Permits: 1, Period: 90 * 24 * time.Hour}, 5),
		weir.TokenBucket(weir.Rate{Permits: 100, Period: 24 * time.Hour}, 100),
		weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Second}, 1),
		weir.TokenBucket(weir.Rate{Permits: 7, Period: 13 * time.Millisecond}, 20),
		weir.TokenBucket(weir.Rate{Permits: 1_000_000_000, Period: time.Second}, 1_000_000_000),
		weir.TokenBucket(weir.Rate{Permits: 1_000_000_000, Period: time.Second}, 1_000_000_000_000_000),
		weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Second}, 1_000_000_000_000_000),
	} {
		l := newTold(t, quotashare.Options{})
		l.subscribe(t, "a", limit)
		a := l.last["a"]
		got := float64(a.TokensPerFill) / float64(a.FillSeconds)
		if want := float64(limit.Rate().Permits) / limit.Rate().Period.Seconds(); a.Kind != quotashare.Tokens || got > want || got < 0.7*want ||
			int64(a.MaxTokens) > limit.Permits() {
			t.Errorf("%v: %+v, %v a second", limit, a, got)
		}
	}
}

// TestUnusedIsAbandoned: buckets that are not used, and those that are not reported.
func TestUnusedIsAbandoned(t *testing.T) {
	limit := weir.TokenBucket(weir.Rate{Permits: 100, Period: time.Second}, 100)
	l := newTold(t, quotashare.Options{Idle: time.Minute, LongestTTL: 30 * time.Second})
	idle, busy := l.subscribe(t, "idle", limit), l.subscribe(t, "busy", limit)
	l.subscribe(t, "silent", limit)
	for at := 5 * time.Second; at <= 70*time.Second; at += 5 * time.Second {
		l.Report(idle, 0, 0, 5*time.Second, int64(at))
		l.Report(busy, 5, 0, 5*time.Second, int64(at))
		l.Tick(int64(at))
	}
	for owner, want := range map[string]bool{"idle": true, "silent": true, "busy": false} {
		if got := l.last[owner].Kind == quotashare.Abandon; got != want {
			t.Errorf("%s: %+v", owner, l.last[owner])
		}
	}
	l.End(busy, int64(70*time.Second))
	l.Tick(int64(3 * time.Minute))
	l.Tick(int64(4 * time.Minute))
	if _, accounts := l.Accounts(1, int64(4*time.Minute)); l.Shares() != 0 || accounts != 0 {
		t.Errorf("%d shares and %d accounts are left of nothing", l.Shares(), accounts)
	}
}

// TestLoweredLimit: all are told at once to use less, in total no more than the new limit.
func TestLoweredLimit(t *testing.T) {
	before := weir.TokenBucket(weir.Rate{Permits: 1000, Period: time.Second}, 1000)
	after := weir.TokenBucket(weir.Rate{Permits: 30, Period: time.Minute}, 50)
	l := newTold(t, quotashare.Options{})
	var shares []*quotashare.Share
	now := time.Duration(0)
	for _, owner := range []string{"a", "b", "c", "d"} {
		shares = append(shares, l.subscribe(t, owner, before))
	}
	for range 4 {
		now += 5 * time.Second
		for _, s := range shares {
			l.Report(s, 1000, 1000, 5*time.Second, int64(now))
		}
	}
	for i, s := range shares {
		var err error
		if shares[i], err = l.SetNeeds(s, []quotashare.Need{{Key: "k", Limit: after}}, false, int64(now)); err != nil {
			t.Fatal(err)
		}
	}
	total := func() (sum float64) {
		for _, s := range shares {
			sum += s.Assigned()
		}
		return sum
	}
	if sum := total(); sum > 0.5 {
		t.Errorf("%v a second are assigned of 0.5", sum)
	}
	for range 40 {
		now += 5 * time.Second
		for _, s := range shares {
			l.Report(s, 0, 100, 5*time.Second, int64(now))
		}
		if sum := total(); sum > 0.5 {
			t.Errorf("%v a second are assigned of 0.5", sum)
		}
	}
	if sum := total(); sum < 0.45 {
		t.Errorf("%v a second are assigned of 0.5 when it has settled", sum)
	}
}

// TestTurns: where the burst has too few tokens for all, they take turns.
func TestTurns(t *testing.T) {
	limit := weir.TokenBucket(weir.Rate{Permits: 10, Period: time.Second}, 2)
	l := newTold(t, quotashare.Options{})
	owners := []string{"a", "b", "c", "d"}
	var shares []*quotashare.Share
	for _, owner := range owners {
		shares = append(shares, l.subscribe(t, owner, limit))
	}
	had := map[string]bool{}
	for at := time.Second; at < 10*time.Minute; at += time.Second {
		if at%(5*time.Second) == 0 {
			for _, s := range shares {
				l.Report(s, 0, 100, 5*time.Second, int64(at))
			}
		}
		l.Tick(int64(at))
		tokens := 0
		for _, owner := range owners {
			if a := l.last[owner]; a.Kind == quotashare.Tokens {
				had[owner] = true
				tokens += int(a.MaxTokens)
			}
		}
		if tokens > 2 {
			t.Fatalf("at %v there are buckets of %d tokens, of a burst of 2", at, tokens)
		}
	}
	if len(had) != len(owners) {
		t.Errorf("only %v had a turn", had)
	}
}

// TestManySharesOfOneLimit: clients that make up buckets of one limit cost the proxies of others little. Without a pause between
// two looks at all shares each of the 150,000 calls takes milliseconds.
func TestManySharesOfOneLimit(t *testing.T) {
	const n = 50_000
	limit := weir.TokenBucket(weir.Rate{Permits: n, Period: time.Second}, n)
	l := newTold(t, quotashare.Options{})
	shares := make([]*quotashare.Share, n)
	now, began := int64(0), time.Now()
	tick := func() {
		if now += int64(100 * time.Microsecond); l.Next(now) <= now {
			l.Tick(now)
		}
		if time.Since(began) > 5*time.Minute { // a busy machine takes some seconds, and looking at all each time half an hour
			t.Fatalf("after %v of the clock of the ledger", time.Duration(now))
		}
	}
	var err error
	for i := range shares {
		if shares[i], err = l.Subscribe(i, []quotashare.Need{{Key: "k", Limit: limit}}, false, now); err != nil {
			t.Fatal(err)
		}
		tick()
	}
	for _, s := range shares {
		l.Report(s, 1, 0, 5*time.Second, now)
		tick()
	}
	for _, s := range shares {
		l.End(s, now)
		tick()
	}
	for range 10_000 {
		now += int64(99900 * time.Microsecond)
		tick()
	}
	if f, n := l.Accounts(1, now); l.Shares() != 0 || n != 0 {
		t.Errorf("%d shares and %d accounts are left: %v", l.Shares(), n, f)
	}
	tokens := 0
	for _, a := range l.last {
		if a.Kind == quotashare.Tokens {
			tokens++
		}
	}
	if tokens < n/3 {
		t.Errorf("%d shares had tokens last", tokens)
	}
}

// TestUsedByOthersIsForgottenWithTheLastShare: an account that others use takes no room and no time once no proxy has a part in it.
func TestUsedByOthersIsForgottenWithTheLastShare(t *testing.T) {
	for _, others := range []float64{3, 100} { // a part of the limit, and all of it
		l := newTold(t, quotashare.Options{})
		s := l.subscribe(t, "a", weir.TokenBucket(weir.Rate{Permits: 100, Period: time.Second}, 50))
		l.Use("k", others, 0)
		l.End(s, 0)
		now, ticks := int64(0), 0
		for ; now < int64(5*time.Minute); ticks++ {
			l.Tick(now)
			now = max(now+1, l.Next(now))
		}
		if _, accounts := l.Accounts(10, now); accounts != 0 || ticks > 1000 {
			t.Errorf("%v/s used by others: %d accounts after %d ticks", others, accounts, ticks)
		}
	}
}
