package durable

import (
	"fmt"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/metered"
)

// The environment variables of [MeteredAPI], and their defaults. The tokens of the second name are those of the bucket: a request
// takes one, however many tokens a model reads or writes for it.
const (
	BurstVariable     = "GEMINI_BURST"
	PerMinuteVariable = "GEMINI_TOKENS_PER_MINUTE"

	DefaultMeteredBurst     = 5
	DefaultMeteredPerMinute = 8
)

// MeteredAPI is the limit of a fleet that calls one paid API: a token bucket of 5 requests at once and 8 a minute. It stays below
// a limit of 10 a minute, and spreads what a minute allows.
//
// With a getenv, such as os.Getenv, two variables replace them. GEMINI_BURST is a whole number from 1 to 1,000,000.
// GEMINI_TOKENS_PER_MINUTE is a number from 0.001 to 60,000,000, of which three decimals count. Both count requests. A variable
// that is not set, or is empty, leaves its default. One that is not a number or out of range does so as well, and both do if the
// bucket would take more than 18300 days to fill. warn then gets the name, the value and the accepted range.
//
// With a getenv of nil nothing is read. A warn of nil is not called. All processes of a cluster should see the same values: the
// limit comes with each request, and that of the last one counts.
func MeteredAPI(getenv func(name string) string, warn func(text string)) weir.Limit {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	if warn == nil {
		warn = func(string) {}
	}
	unusable := func(name, value, accepted string, instead any) {
		warn(fmt.Sprintf("weir: %s is %.80q: must be %s: the default %v is used", name, value, accepted, instead))
	}
	e := metered.Environment{
		BurstVariable: BurstVariable, PerMinuteVariable: PerMinuteVariable, Lookup: getenv, Unusable: unusable,
	}
	burst, perMinute := e.Read(DefaultMeteredBurst, DefaultMeteredPerMinute)
	l := weir.TokenBucket(weir.Per(metered.Rate(perMinute)), burst)
	if l.Check() != nil {
		const together = "so that together with the other one a bucket is full within 18300 days"
		unusable(BurstVariable, getenv(BurstVariable), together, DefaultMeteredBurst)
		unusable(PerMinuteVariable, getenv(PerMinuteVariable), together, DefaultMeteredPerMinute)
		return weir.TokenBucket(weir.PerMinute(DefaultMeteredPerMinute), DefaultMeteredBurst)
	}
	return l
}
