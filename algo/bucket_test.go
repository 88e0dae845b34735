//go:build !race

package algo_test

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
)

func TestBucketParameters(t *testing.T) {
	for _, c := range []struct {
		tokens, rate int64
		refused      string
	}{
		{1, 1, ""},
		{algo.MaxBucketTokens, algo.MaxBucketRate, ""},
		{0, 1, "maxTokens"},
		{-1, 1, "maxTokens"},
		{algo.MaxBucketTokens + 1, 1, "maxTokens"},
		{1, 0, "tokensPerSecond"},
		{1, math.MinInt64, "tokensPerSecond"},
		{1, algo.MaxBucketRate + 1, "tokensPerSecond"},
	} {
		b, err := algo.NewBucket(c.tokens, c.rate)

		switch {
		case c.refused != "":
			refuses(t, "NewBucket", c.refused, err)
		case err != nil:
			t.Error(err)
		case b.MaxTokens() != c.tokens || b.TokensPerSecond() != c.rate || b.Tokens() != c.tokens:
			t.Errorf("%+v, want %d tokens of %d, %d a second", b, c.tokens, c.tokens, c.rate)
		}
	}

	b := must(algo.NewBucket(3, 1))
	if _, ok := b.LastUpdate(); ok {
		t.Error("a new bucket has a last update")
	}
}

// exactBucket is a bucket whose tokens are a rational number.
type exactBucket struct {
	full, have *big.Rat
	rate, last int64
	updated    bool
}

func (e *exactBucket) refill(now int64) {
	if !e.updated {
		e.last, e.updated = now, true
	}

	if now <= e.last {
		return
	}

	gained := new(big.Rat).SetFrac(new(big.Int).Sub(big.NewInt(now), big.NewInt(e.last)), big.NewInt(1000))
	gained.Mul(gained, new(big.Rat).SetInt64(e.rate))
	e.last = now

	if e.have = gained.Add(gained, e.have); e.have.Cmp(e.full) > 0 {
		e.have = e.full
	}
}

func (e *exactBucket) take(now, n int64) bool {
	if n < 0 || new(big.Rat).SetInt64(n).Cmp(e.full) > 0 {
		return false
	}

	if e.refill(now); e.have.Cmp(new(big.Rat).SetInt64(max(n, 1))) < 0 {
		return false
	}

	e.have = new(big.Rat).Sub(e.have, new(big.Rat).SetInt64(n))

	return true
}

// TestBucketHistoriesEqualReference compares buckets with one whose tokens are a rational number.
func TestBucketHistoriesEqualReference(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 1000) {
		tokens := pick(src, 1, 2, 5, 1000, algo.MaxBucketTokens, logUniform(src, algo.MaxBucketTokens))
		rate := pick(src, 1, 3, 999_999_937, algo.MaxBucketRate, logUniform(src, algo.MaxBucketRate))
		full := new(big.Rat).SetInt64(tokens)
		b, e := must(algo.NewBucket(tokens, rate)), exactBucket{full: full, have: full, rate: rate}
		now := pick[int64](src, 0, -1, 1_700_000_000_000, math.MinInt64, math.MaxInt64-1<<40)

		for range 200 {
			n := pick[int64](src, 0, 1, 1, 1, tokens, tokens+1, -1, math.MinInt64, math.MaxInt64, 1+int64(src(uint64(tokens))))
			before := b

			var ok bool
			if b, ok = b.Take(now, n); ok != e.take(now, n) {
				t.Fatalf("%+v: take %d at %d: %t, want %t", before, n, now, ok, !ok)
			}

			if (n < 0 || n > tokens) && b != before {
				t.Fatalf("%+v: take %d of %d at %d leaves %+v", before, n, tokens, now, b)
			}

			if got := big.NewRat(b.MilliTokens(), 1000); got.Cmp(e.have) != 0 {
				t.Fatalf("%+v: take %d at %d leaves %v, want %v", before, n, now, got, e.have)
			}

			if at, updated := b.LastUpdate(); updated != e.updated || at != e.last {
				t.Fatalf("%+v: last update at %d, want %d", b, at, e.last)
			}

			if got, want := b.IsFull(e.last), e.have.Cmp(full) == 0; got != want {
				t.Fatalf("%+v at %d: full is %t with %v tokens", b, e.last, got, e.have)
			}

			sameTwice(t, b)

			now = moveMilliseconds(src, now, tokens*1000-b.MilliTokens(), rate)
		}
	}
}

// moveMilliseconds moves now forward or backward, often by what it takes to regain what is missing.
func moveMilliseconds(src lockstep.Source, now, missing, rate int64) int64 {
	fill := missing / rate
	d := pick(
		src, 0, 0, 1, int64(src(10_000)), fill-1, fill, fill+1, int64(src(uint64(2*(1+fill)))), -1, -int64(src(100_000)), 1<<62, -1<<62,
	)

	if sum := now + d; (sum > now) == (d > 0) {
		return sum
	}

	return now
}

// sameTwice wants a bucket to come out of its text form as it went in.
func sameTwice(t *testing.T, b algo.Bucket) {
	t.Helper()

	again, err := algo.BucketFromPairs(b.Pairs())
	if err != nil || again != b {
		t.Fatalf("%+v read from its pairs %q: %+v, %v", b, b.Pairs(), again, err)
	}
}

func TestBucketTTLAndRetryAfter(t *testing.T) {
	for _, c := range []struct{ tokens, rate, ttl int64 }{
		{1, 1, 60},
		{30, 1, 60},
		{31, 1, 62},
		{100, 3, 68}, // 2 x ceil(33.3)
		{99, 3, 66},
		{algo.MaxBucketTokens, 1, 2 * algo.MaxBucketTokens},
		{algo.MaxBucketTokens, algo.MaxBucketRate, 2000},
	} {
		b := must(algo.NewBucket(c.tokens, c.rate))
		if got := b.TTL(); got != c.ttl {
			t.Errorf("TTL of %d tokens at %d a second is %d s, want %d", c.tokens, c.rate, got, c.ttl)
		}

		for ok := true; ok; b, ok = b.Take(0, max(1, b.Tokens()/2)) {
			if got := b.RetryAfter(); got != 1 {
				t.Errorf("RetryAfter of %+v is %d, want 1: no token takes longer", b, got)
			}
		}
	}
}

// pairs is a text form from alternating keys and values.
func pairs(s ...string) []algo.Pair {
	all := make([]algo.Pair, 0, len(s)/2)
	for ; len(s) > 1; s = s[2:] {
		all = append(all, algo.Pair{Key: s[0], Value: s[1]})
	}

	return all
}

func TestBucketPairsInOrder(t *testing.T) {
	b := must(algo.NewBucket(7, 3))
	if got, want := b.Pairs(), pairs("tc", "7.0", "lu", "", "mt", "7", "tr", "3"); !slices.Equal(got, want) {
		t.Errorf("pairs %q, want %q", got, want)
	}

	b, _ = b.Take(1000, 7)
	b = b.Refill(1_083)

	if got, want := b.Pairs(), pairs("tc", "0.249", "lu", "1083", "mt", "7", "tr", "3"); !slices.Equal(got, want) {
		t.Errorf("pairs %q, want %q", got, want)
	}

	if got, want := b.Refill(1_100).Pairs()[0].Value, "0.3"; got != want {
		t.Errorf("tokens %q, want %q", got, want)
	}
}

func TestBucketFromPairsTakesAnyOrder(t *testing.T) {
	want, err := algo.BucketFromPairs(pairs("tc", "2.5", "lu", "-8", "mt", "10", "tr", "1"))
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range [][]algo.Pair{
		pairs("tr", "1", "mt", "10", "lu", "-8", "tc", "2.5"),
		pairs("lu", "-8", "tc", "2.5", "tr", "1", "mt", "10"),
		pairs("", "", "other", "x", "lu", "-8", "TC", "9", "tc", "2.5", "tr", "1", "mt", "10"),
		pairs("tc", "2.5", "tc", "3", "lu", "-8", "lu", "bad", "mt", "10", "mt", "0", "tr", "1", "tr", "NaN"),
	} {
		if got, err := algo.BucketFromPairs(p); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", p, got, err, want)
		}
	}
}

func TestBucketFromPairsChecksValues(t *testing.T) {
	long := strings.Repeat("9", 400)

	for key, values := range map[string]struct{ refused, accepted []string }{
		"tc": {
			refused: []string{
				"", " ", "-1", "-0.001", "+1", "1 ", " 1", "NaN", "nan", "Inf", "+Inf", "-Inf", "infinity", "0x10", "0x1p3", "0x1e3p0",
				"1_000", "1_0e1", "10.001", "11", "1e2", "1e400", "-1e0", "+1e0", "1e", "e1", "1.", ".5", ".", "1.2.3", "1.x", "1.0005x", "1,5",
				"9223372036854775808", "18446744073709551616", long, "0." + long + "x", "NaNe1", "Infe1", "1.0e1.0", "1.-5", "--1",
				"\u0661", // a digit, but not an ASCII one
			},
			accepted: []string{"0", "0.0", "10", "10.000", "10.0009", "000010", "1e1", "1E+1", "1e-3", "2.5", "9.9999", "0." + long, "0e0"},
		},
		"lu": {
			refused:  []string{" ", "1.5", "NaN", "Inf", "0x1", "1e3", "+1", "9223372036854775808", "-9223372036854775809", long, "1_0"},
			accepted: []string{"", "0", "-1", "9223372036854775807", "-9223372036854775808"},
		},
		"mt": {
			refused:  []string{"", "0", "-1", "9", "+10", "1e3", "10.0", "0x10", "NaN", "Inf", "1000000000001", long},
			accepted: []string{"10", "1000000000000", "0010"},
		},
		"tr": {
			refused:  []string{"", "0", "-1", "1e3", "1.0", "0x10", "NaN", "-Inf", "1000000001", long},
			accepted: []string{"1", "1000000000"},
		},
	} {
		form := func(value string) []algo.Pair {
			all := pairs("tc", "10", "lu", "1", "mt", "10", "tr", "1")
			for i := range all {
				if all[i].Key == key {
					all[i].Value = value
				}
			}

			return all
		}

		for _, v := range values.accepted {
			if b, err := algo.BucketFromPairs(form(v)); err != nil {
				t.Errorf("%s = %q: %v", key, v, err)
			} else {
				sameTwice(t, b)
			}
		}

		for _, v := range values.refused {
			b, err := algo.BucketFromPairs(form(v))
			p, ok := errors.AsType[*algo.PairError](err)

			// A capacity that is too small for the tokens is seen when those are read.
			if !ok || p.Missing || p.Key != key && v != "9" || b != (algo.Bucket{}) {
				t.Errorf("%s = %.40q: %+v, %v, want an error", key, v, b, err)
			} else if len(p.Error()) > 200 {
				t.Errorf("%s = %.40q: the error has %d characters", key, v, len(p.Error()))
			}
		}
	}
}

func TestBucketFromPairsNeedsAllKeys(t *testing.T) {
	all := pairs("tc", "10", "lu", "1", "mt", "10", "tr", "1")
	for i, missing := range all {
		rest := append(slices.Clone(all[:i]), all[i+1:]...)

		_, err := algo.BucketFromPairs(rest)
		if p, ok := errors.AsType[*algo.PairError](err); !ok || !p.Missing || p.Key != missing.Key {
			t.Errorf("without %s: %v, want an error that says so", missing.Key, err)
		}
	}

	if _, err := algo.BucketFromPairs(nil); err == nil {
		t.Error("no pairs make a bucket")
	}
}

// TestBucketFromPairsIsExact reads what other programs write: all three decimals count, in every notation, and the
// rest is rounded down.
func TestBucketFromPairsIsExact(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 20_000) {
		milli := logUniform(src, algo.MaxBucketTokens*1000)
		f := float64(milli) / 1000

		for _, format := range []byte{'f', 'e', 'E', 'g'} {
			text := strconv.FormatFloat(f, format, -1, 64)

			b, err := algo.BucketFromPairs(pairs("tc", text, "lu", "", "mt", "1000000000000", "tr", "1"))
			if err != nil || b.MilliTokens() != milli {
				t.Fatalf("%s is read as %d thousandths, %v, want %d", text, b.MilliTokens(), err, milli)
			}
		}
	}

	for text, want := range map[string]int64{"1e12": 1e15, "1.0019": 1001, "0.9999999": 999, "1e-4": 0, "1.2345e1": 12_345, "1.001e0": 1001} {
		b, err := algo.BucketFromPairs(pairs("tc", text, "lu", "", "mt", "1000000000000", "tr", "1"))
		if err != nil || b.MilliTokens() != want {
			t.Errorf("%s is read as %d thousandths, %v, want %d", text, b.MilliTokens(), err, want)
		}
	}
}

func FuzzBucketPairs(f *testing.F) {
	f.Add("tc", "2.5", "lu", "17", "mt", "10", "tr", "1", int64(20), int64(1))
	f.Add("tr", "1000000000", "mt", "1000000000000", "lu", "", "tc", "1e12", int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add("tc", "NaN", "lu", "-9223372036854775808", "mt", "0x10", "tr", "1_0", int64(math.MinInt64), int64(-1))
	f.Add("tc", "0.0009", "lu", "9223372036854775807", "mt", "1", "tr", "1", int64(math.MinInt64), int64(0))
	f.Add("tc", "1", "tc", "Inf", "mt", "", "tr", "+1", int64(0), int64(0))

	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, k3, v3, k4, v4 string, now, n int64) {
		b, err := algo.BucketFromPairs(pairs(k1, v1, k2, v2, k3, v3, k4, v4))
		if err != nil {
			if b != (algo.Bucket{}) || err.Error() == "" {
				t.Fatalf("%+v along with the error %q", b, err)
			}

			return
		}

		within := func(b algo.Bucket) {
			if b.MaxTokens() < 1 || b.MaxTokens() > algo.MaxBucketTokens || b.TokensPerSecond() < 1 ||
				b.TokensPerSecond() > algo.MaxBucketRate || b.MilliTokens() < 0 || b.MilliTokens() > b.MaxTokens()*1000 {
				t.Fatalf("%+v is out of range", b)
			}

			sameTwice(t, b)
		}

		within(b)

		after, ok := b.Take(now, n)
		within(after)

		if ok != (n >= 0 && n <= b.MaxTokens() && b.Refill(now).MilliTokens() >= 1000*max(n, 1)) {
			t.Fatalf("%+v: take %d at %d: %t", b, n, now, ok)
		}

		if ok && after.MilliTokens() != b.Refill(now).MilliTokens()-1000*n {
			t.Fatalf("%+v: take %d at %d leaves %+v", b, n, now, after)
		}

		if b.TTL() < 60 || b.RetryAfter() < 1 {
			t.Fatalf("%+v: TTL %d, RetryAfter %d", b, b.TTL(), b.RetryAfter())
		}
	})
}
