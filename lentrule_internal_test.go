//go:build !race

package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

// lentRule is the rule of lending in plain numbers: num units come in a nanosecond, and per units are a permit.
type lentRule struct {
	num, per, burst, block int64

	bucket int64 // units
	cells  map[uint]int64
	out    int64 // permits
	lent   bool
}

func (r *lentRule) pass(d time.Duration) {
	r.bucket = min(r.bucket+r.num*int64(d), (r.burst-r.out)*r.per)
}

// total is the permits that there are.
func (r *lentRule) total() int64 {
	n := r.bucket / r.per
	for _, lent := range r.cells {
		n += lent
	}
	return n
}

func (r *lentRule) collect() {
	for _, n := range r.cells {
		r.bucket += n * r.per
	}
	clear(r.cells)
	r.out, r.lent = 0, false
}

// allow is a call from a goroutine of cell i.
func (r *lentRule) allow(i uint) bool {
	if r.lent && r.cells[i] > 0 {
		r.cells[i]--
		return true
	}
	if n := min(r.bucket/r.per, r.block); r.lent && n > 0 {
		if _, again := r.cells[i]; !again {
			r.out += r.block
		}
		r.bucket -= n * r.per
		r.cells[i] = n - 1
		return true
	}
	r.collect()
	if r.bucket < r.per {
		return false
	}
	r.bucket -= r.per
	return true
}

// TestLendingEqualsItsRule plays random histories on a bucket that lends and on the rule of lending. All decisions must be the same.
// Whatever is lent when, every permit must also be allowed by the arithmetic of a bucket that lends nothing: so no interval has
// more than burst + rate x t. And where a caller polls, no interval may have less than rate x t - 1.
func TestLendingEqualsItsRule(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 2_000
	}
	for _, rate := range []Rate{PerSecond(999999937), PerSecond(1e9), PerSecond(12345), Per(999983, 1000003), Per(7, 3*time.Millisecond)} {
		for _, burst := range []int64{256, 1000, 4096} {
			t.Run(fmt.Sprintf("%v, burst %d", rate, burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newLentPair(t, rate, burst).play(steps) })
			})
		}
	}
}

// lentPair is a bucket that lends, its rule, and the arithmetic of one that does not.
type lentPair struct {
	t       *testing.T
	rng     *rand.Rand
	limiter *Limiter
	rule    *lentRule
	bucket  algo.TokenBucket
	state   algo.TokenBucketState
	tick    time.Duration // about one permit
	at      int64

	granted, refused, lent int64
}

func newLentPair(t *testing.T, rate Rate, burst int64) *lentPair {
	t.Helper()
	l, err := New(TokenBucket(rate, burst), Options{})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := algo.NewTokenBucket(rate.Permits, rate.Period, burst)
	if err != nil {
		t.Fatal(err)
	}
	num, per := bucket.Rate()
	if l.fast.ample < 0 {
		t.Fatal("does not lend")
	}
	l.fast.timer = time.AfterFunc(longest, func() {}) // the reader is this test
	t.Cleanup(func() { l.fast.timer.Stop() })
	return &lentPair{
		t: t, rng: rand.New(rand.NewPCG(uint64(burst), uint64(rate.Permits))), limiter: l, bucket: bucket,
		rule: &lentRule{num: num, per: per, burst: burst, block: l.fast.block, bucket: burst * per, cells: map[uint]int64{}},
		tick: max(1, rate.Period/time.Duration(rate.Permits)), at: clock.Now(),
	}
}

func (p *lentPair) play(steps int) {
	for range steps {
		switch p.rng.IntN(40) {
		case 0:
			p.poll()
		case 1:
			p.pass(time.Duration(p.rng.Int64N(int64(p.tick) * p.rule.burst * 2)))
		case 2, 3:
			p.lend()
		case 4:
			p.look()
		case 5:
			p.others()
		default:
			p.pass(time.Duration(p.rng.Int64N(int64(p.tick) * 2)))
			for range p.rng.IntN(50) {
				p.allow(uint(p.rng.IntN(p.rng.IntN(16) + 1)))
			}
		}
	}
	if p.granted < int64(steps) || p.refused < int64(steps)/100 || p.lent < int64(steps)/2 {
		p.t.Errorf("%d granted, %d of them lent, and %d refused: the history shows little", p.granted, p.lent, p.refused)
	}
}

func (p *lentPair) pass(d time.Duration) {
	time.Sleep(d)
	p.passed()
}

func (p *lentPair) passed() {
	now := clock.Now()
	p.rule.pass(time.Duration(now - p.at))
	p.at = now
}

// allow is what Allow does, from cell i.
func (p *lentPair) allow(i uint) (got bool) {
	p.t.Helper()
	lent := p.limiter.fast.word.Load() == lent
	if lent != p.rule.lent {
		p.t.Fatalf("lent: %v, want %v", lent, p.rule.lent)
	}
	if lent {
		got = p.limiter.fast.spend(i) || p.limiter.allowLocked(i)
	} else {
		got = p.limiter.Allow()
	}
	if want := p.rule.allow(i); got != want {
		p.t.Fatalf("allowed from cell %d: %v, want %v of %+v", i, got, want, p.rule)
	}
	p.count(1, got)
	if got && lent {
		p.lent++
	}
	return got
}

// count counts an answer, and compares it with a bucket that lends nothing.
func (p *lentPair) count(n int64, got bool) {
	p.t.Helper()
	if !got {
		p.refused++
		return
	}
	p.granted++
	var r algo.Result
	if p.state, r = p.bucket.Take(p.state, clock.Now(), n); !r.Allowed {
		p.t.Fatalf("%d permits are more than burst + rate x t: %+v", n, r)
	}
}

// poll asks again and again from any cell: between refusals no permit may be lost.
func (p *lentPair) poll() {
	var from time.Time
	got := int64(0)
	for range 200 {
		switch {
		case p.allow(uint(p.rng.IntN(16))):
			got++
			continue
		case from.IsZero():
			from, got = time.Now(), 0
		}
		if due := int64(time.Since(from)) * p.rule.num / p.rule.per; got < due-1 {
			p.t.Fatalf("%d permits in %v, of which %d come", got, time.Since(from), due)
		}
		p.pass(max(1, p.tick/3))
	}
}

// lend lends, as contention has it do.
func (p *lentPair) lend() {
	a := &p.limiter.fast
	p.limiter.lock()
	a.hot = true
	p.limiter.unlock()
	p.rule.collect()
	p.rule.lent = true
}

// look is what the timer does.
func (p *lentPair) look() {
	a := &p.limiter.fast
	a.look()
	goesOn := a.timer != nil
	p.rule.collect()
	p.rule.lent = goesOn
	if a.timer == nil {
		a.timer = time.AfterFunc(longest, func() {})
	} else {
		a.timer.Reset(longest)
	}
}

// others are the calls that see all permits, wherever they lie.
func (p *lentPair) others() {
	p.t.Helper()
	total := p.rule.total()
	switch p.rng.IntN(6) {
	case 0:
		if d := p.limiter.Peek(1); d.Remaining != total {
			p.t.Fatalf("%d remain, want %d", d.Remaining, total)
		}
	case 1:
		s := p.limiter.Stats()
		if s.Remaining != total || s.Allowed != p.granted || s.Refused != p.refused {
			p.t.Fatalf("%+v, want %d available, %d granted, %d refused", s, total, p.granted, p.refused)
		}
	case 2:
		n := p.rng.Int64N(2*total+2) + 1
		got := p.limiter.Take(n).Allowed
		if got != (n <= total) {
			p.t.Fatalf("%d permits of %d: %v", n, total, got)
		}
		p.count(n, got)
		if got {
			p.rule.bucket -= n * p.rule.per
		}
	case 3:
		n := p.rng.Int64N(p.rule.burst) + 1
		p.limiter.Refund(n)
		p.state = p.bucket.Refund(p.state, clock.Now(), n)
		p.rule.collect()
		p.rule.bucket = min(p.rule.bucket+n*p.rule.per, p.rule.burst*p.rule.per)
		return
	case 4:
		if n := total/2 + 1; n <= total {
			l := p.limiter.TryReserve(n)
			p.limiter.Stats() // nothing of it may be lent meanwhile
			l.Cancel()
			p.granted++
		} else {
			return
		}
	default:
		if total == 0 {
			return
		}
		if err := p.limiter.Wait(context.Background(), total); err != nil {
			p.t.Fatal(err)
		}
		if total == 1 && p.rule.lent { // from a cell that this test does not know
			p.limiter.Stats()
		}
		p.count(total, true)
		p.rule.collect()
		p.rule.bucket -= total * p.rule.per
		return
	}
	p.rule.collect()
}

// TestLendingSmallBlocks: cells whose first blocks were small are lent whole ones later, and together with a full bucket they still
// hold no more than the burst.
func TestLendingSmallBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, first = 256, 3
		p := newLentPair(t, PerSecond(1e9), burst)
		p.lend()
		for range burst { // until the bucket is empty
			p.allow(0)
		}
		for i := uint(1); i < 16; i++ {
			p.pass(first)
			p.allow(i)
		}
		p.pass(burst)
		for i := uint(1); i < 16; i++ {
			for range first {
				p.allow(i)
			}
		}
		p.pass(burst)
		for i := range uint(16) {
			for range burst { // which the bucket that lends nothing must allow, too
				p.allow(i)
			}
		}
	})
}
