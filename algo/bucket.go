package algo

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bucket is a token bucket with its parameters and a text form, as a plain key-value store keeps it between two calls, one of
// which may come from another program. Inside one program use [TokenBucket].
//
// It counts thousandths of tokens and milliseconds, so a rate of whole tokens per second is exact. Its methods are pure: they
// return a new Bucket and leave the old one.
//
// A clock that goes backward neither refills nor drains: the latest time stays. A caller whose clock is behind sees no refill
// until its clock has caught up, so callers whose clocks differ gain no tokens.
//
// The zero Bucket is not one: make it by [NewBucket] or [BucketFromPairs].
type Bucket struct {
	maxTokens  int64
	perSecond  int64
	milli      int64 // thousandths of a token available
	lastUpdate int64 // ms
	updated    bool
}

const (
	// MaxBucketTokens is the max size of a [Bucket]: 10^12 tokens.
	MaxBucketTokens int64 = 1e12
	// MaxBucketRate is the largest rate of a [Bucket]: 10^9 tokens a second.
	MaxBucketRate int64 = 1e9
)

// NewBucket returns a full bucket that has never been updated: maxTokens from 1 to [MaxBucketTokens], tokensPerSecond
// from 1 to [MaxBucketRate].
func NewBucket(maxTokens, tokensPerSecond int64) (Bucket, error) {
	if maxTokens < 1 || maxTokens > MaxBucketTokens {
		return Bucket{}, &ParameterError{"maxTokens", fmt.Sprint(maxTokens), "from 1 to 10^12"}
	}
	if tokensPerSecond < 1 || tokensPerSecond > MaxBucketRate {
		return Bucket{}, &ParameterError{"tokensPerSecond", fmt.Sprint(tokensPerSecond), "from 1 to 10^9"}
	}
	return Bucket{maxTokens: maxTokens, perSecond: tokensPerSecond, milli: maxTokens * 1000}, nil
}

// MaxTokens is how many tokens fit into the bucket.
func (b Bucket) MaxTokens() int64 { return b.maxTokens }

// TokensPerSecond is the rate of refilling.
func (b Bucket) TokensPerSecond() int64 { return b.perSecond }

// Tokens is how many whole tokens were in the bucket at its last update.
func (b Bucket) Tokens() int64 { return b.milli / 1000 }

// MilliTokens is how many thousandths of a token were in the bucket at its last update.
func (b Bucket) MilliTokens() int64 { return b.milli }

// LastUpdate is when the tokens were counted, in milliseconds; not ok for a bucket that has never been updated.
func (b Bucket) LastUpdate() (milliseconds int64, ok bool) { return b.lastUpdate, b.updated }

// Refill adds the tokens of the time since the last update; now is in milliseconds. The first update adds none.
func (b Bucket) Refill(now int64) Bucket {
	if !b.updated {
		b.lastUpdate, b.updated = now, true
		return b
	}
	gone := elapsed(b.lastUpdate, now)
	if gone == 0 {
		return b
	}
	b.lastUpdate = now
	missing := b.maxTokens*1000 - b.milli
	// tokens per second are thousandths of a token per millisecond
	if gone > missing/b.perSecond {
		b.milli = b.maxTokens * 1000
	} else {
		b.milli += gone * b.perSecond
	}
	return b
}

// Hit refills the bucket and takes one token if there is one.
func (b Bucket) Hit(now int64) (Bucket, bool) { return b.Take(now, 1) }

// Take refills the bucket and takes n tokens if there are so many. n = 0 succeeds if there is a token, and takes nothing. A
// negative n and one above MaxTokens are refused, and the bucket does not change.
func (b Bucket) Take(now, n int64) (Bucket, bool) {
	if n < 0 || n > b.maxTokens {
		return b, false
	}
	b = b.Refill(now)
	if b.milli < max(n, 1)*1000 {
		return b, false
	}
	b.milli -= n * 1000
	return b, true
}

// IsFull reports whether the bucket is full at time now, in milliseconds.
func (b Bucket) IsFull(now int64) bool { return b.Refill(now).milli == b.maxTokens*1000 }

// TTL is how long a store should keep the bucket, in seconds: twice the time from empty to full, at least 60.
func (b Bucket) TTL() int64 {
	return max(2*((b.maxTokens+b.perSecond-1)/b.perSecond), 60)
}

// RetryAfter is how long it takes from the last update until there is a token, in whole seconds rounded up, at least 1.
func (b Bucket) RetryAfter() int64 {
	missing := 1000 - b.milli
	if missing <= 0 {
		return 1
	}
	perSecond := b.perSecond * 1000
	return max(1, (missing+perSecond-1)/perSecond)
}

// Pair is one field of the text form.
type Pair struct{ Key, Value string }

// Pairs is the text form, in this order: the tokens "tc" with up to three decimals, the time of the last update "lu" in
// milliseconds, MaxTokens as "mt" and the rate "tr". "lu" is empty for a bucket that has never been updated.
func (b Bucket) Pairs() []Pair {
	lu := ""
	if b.updated {
		lu = strconv.FormatInt(b.lastUpdate, 10)
	}
	tc := strconv.FormatInt(b.milli/1000, 10)
	if part := b.milli % 1000; part == 0 {
		tc += ".0"
	} else {
		tc += "." + strings.TrimRight(fmt.Sprintf("%03d", part), "0")
	}
	return []Pair{
		{"tc", tc},
		{"lu", lu},
		{"mt", strconv.FormatInt(b.maxTokens, 10)},
		{"tr", strconv.FormatInt(b.perSecond, 10)},
	}
}

// A PairError is a pair of a text form that cannot be used.
type PairError struct {
	Key     string
	Value   string
	Missing bool
	Reason  string
}

// Error names the pair, its value and what is accepted.
func (e *PairError) Error() string {
	if e.Missing {
		return fmt.Sprintf("algo: pair %q is missing: a bucket needs tc, lu, mt and tr", e.Key)
	}
	return fmt.Sprintf("algo: pair %s=%.40q: must be %s", e.Key, e.Value, e.Reason)
}

// BucketFromPairs is the inverse of Pairs. All four keys must be there, in any order. The first of two pairs with the same key
// counts, and other keys are ignored. Tokens with more than three decimals are rounded down. An error names the first pair that
// is not a number or is out of range.
func BucketFromPairs(pairs []Pair) (Bucket, error) {
	var values [4]string
	for i, key := range [4]string{"tc", "lu", "mt", "tr"} {
		found := false
		for _, p := range pairs {
			if p.Key == key {
				values[i], found = p.Value, true
				break
			}
		}
		if !found {
			return Bucket{}, &PairError{Key: key, Missing: true}
		}
	}
	mt, ok := parseInteger(values[2], 1, MaxBucketTokens)
	if !ok {
		return Bucket{}, &PairError{Key: "mt", Value: values[2], Reason: "an integer from 1 to 10^12"}
	}
	tr, ok := parseInteger(values[3], 1, MaxBucketRate)
	if !ok {
		return Bucket{}, &PairError{Key: "tr", Value: values[3], Reason: "an integer from 1 to 10^9"}
	}
	b := Bucket{maxTokens: mt, perSecond: tr}
	milli, ok := parseMilli(values[0])
	if !ok || milli > mt*1000 {
		return Bucket{}, &PairError{Key: "tc", Value: values[0], Reason: fmt.Sprintf("a decimal number from 0 to mt = %d", mt)}
	}
	b.milli = milli
	if values[1] != "" {
		lu, ok := parseInteger(values[1], math.MinInt64, math.MaxInt64)
		if !ok {
			return Bucket{}, &PairError{Key: "lu", Value: values[1], Reason: "empty or an integer of milliseconds"}
		}
		b.lastUpdate, b.updated = lu, true
	}
	return b, nil
}

// parseInteger reads an integer from low to high, without a plus sign.
func parseInteger(s string, low, high int64) (int64, bool) {
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil && s[0] != '+' && low <= v && v <= high
}

// parseMilli reads a decimal number from 0 to MaxBucketTokens as thousandths, rounded down. A number with an exponent, as
// other programs write large floats, is that of the shortest decimal number which is the same float.
func parseMilli(s string) (int64, bool) {
	if strings.ContainsAny(s, "eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || strings.ContainsAny(s, "xX_") || s[0] == '+' {
			return 0, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, part, point := strings.Cut(s, ".")
	w, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || w > uint64(MaxBucketTokens) || point && part == "" {
		return 0, false
	}
	milli := int64(w)
	for i := range 3 {
		milli *= 10
		if i < len(part) {
			milli += int64(part[i] - '0')
		}
	}
	return milli, strings.Trim(part, "0123456789") == ""
}
