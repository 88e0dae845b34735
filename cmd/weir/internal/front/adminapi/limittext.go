package adminapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
)

// limitError says how a limit must be written.
type limitError struct{ accepted string }

// Error is what is accepted.
func (w *limitError) Error() string { return w.accepted }

// parseLimit reads a limit with the algorithm of another one, as its String writes it, or shorter: "100/s, burst 200", "100/s",
// and for limits without a rate the number of permits.
func parseLimit(text string, like weir.Limit) (weir.Limit, error) {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, like.Algorithm().String()); ok {
		text = strings.TrimSpace(rest)
	}
	switch like.Algorithm() {
	case weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow:
		text = strings.TrimSpace(strings.TrimSuffix(text, fmt.Sprintf(" per %v", like.Calendar())))
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return like, &limitError{"must be a number of permits such as 100, as the limit is a " + like.Algorithm().String()}
		}
		if n < 1 {
			return like, &limitError{"must be from 1 to 10^15"}
		}
		l := like.WithPermits(n)
		return l, l.Check()
	default:
		if like.Algorithm() == weir.AlgorithmSlidingWindow {
			text, _, _ = strings.Cut(text, " in ")
		}
		rate, burst, withBurst := strings.Cut(text, ",")
		accepted := `must be a rate such as "100/s"`
		if like.Algorithm() == weir.AlgorithmTokenBucket {
			accepted += ` or "100/s, burst 200"`
		}
		parsed, err := weir.ParseRate(strings.TrimSpace(rate))
		if err != nil {
			return like, &limitError{accepted + ": " + strings.TrimPrefix(err.Error(), "weir: ")}
		}
		l := like.WithRate(parsed)
		if like.Algorithm() == weir.AlgorithmTokenBucket {
			l = l.WithPermits(parsed.Permits)
		}
		if withBurst {
			number, ok := strings.CutPrefix(strings.TrimSpace(burst), "burst ")
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if !ok || err != nil || n < 1 || like.Algorithm() != weir.AlgorithmTokenBucket {
				return like, &limitError{accepted}
			}
			l = l.WithPermits(n)
		}
		return l, l.Check()
	}
}
