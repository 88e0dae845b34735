package durable

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/weirhq/weir"
)

// The environment variables of [MeteredAPI], and what they stand for where they say nothing.
const (
	BurstVariable     = "GEMINI_BURST"
	PerMinuteVariable = "GEMINI_TOKENS_PER_MINUTE"

	DefaultMeteredBurst     = 5
	DefaultMeteredPerMinute = 8
)

const (
	mostMeteredBurst      = 1_000_000
	leastMeteredPerMinute = 0.001
	mostMeteredPerMinute  = 60_000_000
)

// MeteredAPI is the limit of a client of an API that is paid for, or refuses what comes too fast, for a whole fleet: a token
// bucket of 5 requests at once and 8 a minute, which stays below a limit of 10 a minute, and spreads what a minute allows.
//
// GEMINI_BURST, a whole number from 1 to 1,000,000, and GEMINI_TOKENS_PER_MINUTE, a number from 0.001 to 60,000,000 that may have
// a fraction, of which three decimals count, replace them. A variable that is not set, or is empty, leaves its default. One that
// is no number or out of range does so as well, and so do both if a bucket of theirs would take more than 18300 days to fill;
// warn is then told the name, the value and what is accepted.
//
// The variables are read by getenv, os.Getenv if it is nil. A warn of nil is not called. All processes of a cluster should see
// the same values: the limit comes with each request, and that of the last one counts.
func MeteredAPI(getenv func(name string) string, warn func(text string)) weir.Limit {
	if getenv == nil {
		getenv = os.Getenv
	}
	if warn == nil {
		warn = func(string) {}
	}
	l := weir.Limit{Rate: weir.PerMinute(DefaultMeteredPerMinute), Burst: DefaultMeteredBurst}
	unusable := func(name, value, accepted string, instead any) {
		warn(fmt.Sprintf("weir: %s is %.80q: must be %s: the default %v is used", name, value, accepted, instead))
	}
	burst, perMinute := getenv(BurstVariable), getenv(PerMinuteVariable)
	if burst != "" {
		if n, err := strconv.ParseInt(burst, 10, 64); err == nil && n >= 1 && n <= mostMeteredBurst {
			l.Burst = n
		} else {
			unusable(BurstVariable, burst, "a whole number from 1 to 1000000", DefaultMeteredBurst)
		}
	}
	if perMinute != "" {
		// NaN is in no range.
		if f, err := strconv.ParseFloat(perMinute, 64); err == nil && f >= leastMeteredPerMinute && f <= mostMeteredPerMinute {
			l.Rate = perMinuteRate(f)
		} else {
			unusable(PerMinuteVariable, perMinute, "a number from 0.001 to 60000000", DefaultMeteredPerMinute)
		}
	}
	if l.Check() != nil {
		const together = "so that together with the other one a bucket is full within 18300 days"
		unusable(BurstVariable, burst, together, DefaultMeteredBurst)
		unusable(PerMinuteVariable, perMinute, together, DefaultMeteredPerMinute)
		return weir.Limit{Rate: weir.PerMinute(DefaultMeteredPerMinute), Burst: DefaultMeteredBurst}
	}
	return l
}

// perMinuteRate is a rate with up to three decimals.
func perMinuteRate(f float64) weir.Rate {
	if f == math.Trunc(f) {
		return weir.PerMinute(int64(f))
	}
	const parts = 1000
	return weir.Per(int64(math.Round(f*parts)), parts*time.Minute)
}
