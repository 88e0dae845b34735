package checkapi

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// TestWhatWasNotAskedHasNoRemaining: what remains of a limit whose store was not asked is null, and not 0.
func TestWhatWasNotAskedHasNoRemaining(t *testing.T) {
	v := policy.Verdict{Parts: []policy.Part{
		{Decision: weir.Decision{Limit: 5, Reason: weir.ReasonLimited, RetryAfter: time.Second}},
		{Decision: weir.Decision{Limit: 100, Allowed: true}, Unasked: true},
		{Decision: weir.Decision{Limit: 9, Allowed: true}},
	}}
	got := string(appendVerdict(nil, &v, 0))
	for _, want := range []string{`"limit":5,"remaining":0,`, `"limit":100,"remaining":null,`, `"limit":9,"remaining":0,`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.001", time.Millisecond: "0.001", time.Millisecond + 1: "0.002", 100 * time.Millisecond: "0.1",
		time.Second: "1", 999*time.Millisecond + 1: "1", 1050 * time.Millisecond: "1.05", 24 * time.Hour: "86400",
		weir.Never: "null", weir.Never - 1: "9223372036.855",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
