package adminapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

// limitError says how a limit must be written.
type limitError struct{ accepted string }

// Error is what is accepted.
func (w *limitError) Error() string { return w.accepted }

// parseLimit reads a limit with the algorithm of another one, as [weir.ParseLimit] does, or shorter: "100/s, burst 200", "100/s",
// and for limits without a rate the number of permits.
func parseLimit(text string, like weir.Limit) (weir.Limit, error) {
	text = strings.TrimSpace(text)
	if like.Rate() == (weir.Rate{}) {
		unit := " at once"
		if like.Algorithm() == weir.AlgorithmCalendarWindow {
			unit = fmt.Sprintf(" per %v", like.Calendar())
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
		if err != nil {
			return like, &limitError{"must be a number of permits such as 100, as the limit is a " + like.Algorithm().String()}
		}
		l := limits.WithPermits(like, n)
		return l, l.Check()
	}
	accepted := `must be a rate such as "100/s"`
	if like.Algorithm() == weir.AlgorithmTokenBucket {
		accepted += ` or "100/s, burst 200"`
	}
	if !strings.HasPrefix(text, like.Algorithm().String()) {
		text = like.Algorithm().String() + " " + text
	}
	l, err := weir.ParseLimit(text)
	if _, out := errors.AsType[*weir.OptionError](err); out {
		return like, err
	}
	if err != nil || l.Algorithm() != like.Algorithm() {
		return like, &limitError{accepted}
	}
	if like.Algorithm() == weir.AlgorithmTokenBucket {
		return l, nil
	}
	if strings.Contains(text, " segments") && l.Segments() != like.Segments() {
		return like, &limitError{fmt.Sprintf("must have the %d segments of the policy, or name none", like.Segments())}
	}
	return limits.WithRate(like, l.Rate()), nil
}
