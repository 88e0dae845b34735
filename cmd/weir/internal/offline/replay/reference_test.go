package replay_test

import (
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file replays a log slowly, and in another way than the program: lines are read with a regular expression, and a
// bucket counts its permits in fractions of unlimited precision.

var combinedLine = regexp.MustCompile(
	`^(\S+) \S+ \S+ \[(\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\] "((?:[^"\\]|\\.)*)" (?:\d{3}|-) (?:\d+|-)(?: .*)?$`)

// referenceKey is what the reference counts for a client.
type referenceKey struct {
	permits                   *big.Rat
	counted                   time.Time // when the permits were counted
	Requests, Refused         int64
	FirstRefused, LastRefused time.Time
	WorstRetryAfter           float64
	windows                   map[int64]int64
	Peak                      int64
}

type referenceResult struct {
	requests, refused, malformed, reordered int64
	first, last                             time.Time
	keys                                    map[string]*referenceKey
}

// replaySlowly replays a log in the combined format by client.
func replaySlowly(log string, permits int64, period time.Duration, burst int64) referenceResult {
	perNanosecond := big.NewRat(permits, int64(period))
	full := new(big.Rat).SetInt64(burst)
	one := big.NewRat(1, 1)
	window := max(period, time.Second)
	result := referenceResult{keys: map[string]*referenceKey{}}
	type request struct {
		client string
		at     time.Time
	}
	var requests []request
	latest := time.Time{}
	for line := range strings.SplitSeq(log, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		client, at, ok := referenceParse(line)
		if !ok {
			result.malformed++
			continue
		}
		requests = append(requests, request{client, at})
		if at.Before(latest) {
			result.reordered++
		} else {
			latest = at
		}
	}
	slices.SortStableFunc(requests, func(a, b request) int { return a.at.Compare(b.at) })
	for i, r := range requests {
		client, at := r.client, r.at
		if i == 0 {
			result.first = at
		}
		result.last = at
		result.requests++

		k := result.keys[client]
		if k == nil {
			k = &referenceKey{permits: new(big.Rat).Set(full), counted: at, windows: map[int64]int64{}}
			result.keys[client] = k
		}
		k.Requests++
		w := at.UnixNano() / int64(window)
		k.windows[w]++
		k.Peak = max(k.Peak, k.windows[w])

		gained := new(big.Rat).Mul(perNanosecond, new(big.Rat).SetInt64(int64(at.Sub(k.counted))))
		k.permits.Add(k.permits, gained)
		if k.permits.Cmp(full) > 0 {
			k.permits.Set(full)
		}
		k.counted = at
		if k.permits.Cmp(one) >= 0 {
			k.permits.Sub(k.permits, one)
			continue
		}
		result.refused++
		if k.Refused == 0 {
			k.FirstRefused = at
		}
		k.Refused++
		k.LastRefused = at
		missing := new(big.Rat).Sub(one, k.permits)
		k.WorstRetryAfter = max(k.WorstRetryAfter, ceil(missing.Quo(missing, perNanosecond)).Seconds())
	}
	return result
}

// ceil rounds nanoseconds up.
func ceil(r *big.Rat) time.Duration {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return time.Duration(whole.Int64())
}

func referenceParse(line string) (client string, at time.Time, ok bool) {
	m := combinedLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return "", time.Time{}, false
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
	if err != nil {
		return "", time.Time{}, false
	}
	client = m[1]
	if address, err := netip.ParseAddr(client); err == nil {
		client = address.Unmap().String()
	}
	return client, at, true
}
