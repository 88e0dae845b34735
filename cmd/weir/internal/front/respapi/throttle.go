package respapi

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/keyset"
)

// throttle answers CL.THROTTLE and its relatives, which bring the limit of a key with each call. Their keys have nothing to do
// with those of policies.
type throttle struct {
	keys  *weir.Keyed[string]
	plans *planCache
}

// DefaultMaxKeys is how many keys CL.THROTTLE keeps unless [Options] say otherwise.
const DefaultMaxKeys = 1_000_000

func newThrottle(o Options) (*throttle, error) { return throttleAt(o.MaxKeys, nil) }

// throttleAt is newThrottle with a clock; nil is that of the process.
func throttleAt(maxKeys int, clock weir.Clock) (*throttle, error) {
	if maxKeys == 0 {
		maxKeys = DefaultMaxKeys
	}
	// No key has this limit: every call brings its own.
	keys, err := weir.NewKeyedFunc(
		weir.TokenBucket(weir.PerSecond(1), 0),
		weir.KeyedOptions{Name: "cl.throttle", MaxKeys: maxKeys, MaxNames: 1, Clock: clock},
		func(string) weir.Limit { return weir.Limit{} },
	)
	if err != nil {
		return nil, fmt.Errorf("weir: MaxKeys is %d: must be from 1 to 2147483648, or 0 for %d", maxKeys, DefaultMaxKeys)
	}
	return &throttle{keys, newPlanCache(keys)}, nil
}

const throttleSummary = "Takes permits of a key under the limit that the call brings"

func (t *throttle) commands() []command {
	var all []command
	for _, name := range []string{"cl.throttle", "throttle", "rl.throttle"} {
		usage := "ERR Usage: " + name + " <key> <max_burst> <count per period> <period> [<quantity>]"
		all = append(all, grouped("rate-limit", func(*spec) string { return usage }, spec{
			name, -5, write | fast, 1, "key max_burst count period [quantity]", throttleSummary,
			func(_ *conn, w *resp.Writer, args [][]byte) { t.throttle(w, args, usage) },
		})...)
		all[len(all)-1].plan = t.plan
	}
	return append(all, grouped("rate-limit", nil, spec{
		"gcra", -5, write | fast, 1, "key max-burst tokens-per-period period [TOKENS count]", throttleSummary + " (experimental)",
		func(_ *conn, w *resp.Writer, args [][]byte) { t.gcra(w, args) },
	})...)
}

// status adds what there is to tell to that of the server.
func (t *throttle) status(into map[string]any) {
	s := t.keys.Stats()
	into["throttle"] = map[string]any{
		"keys": s.Keys, "max_keys": s.MaxKeys, "allowed": s.Allowed, "refused": s.Refused,
	}
}

// names are what the fields of a limit are called in errors.
type names struct{ burst, count string }

var (
	cellNames = names{"max_burst", "count"}
	gcraNames = names{"max-burst", "tokens-per-period"}
)

// throttle serves CL.THROTTLE key max_burst count period [quantity].
func (t *throttle) throttle(w *resp.Writer, args [][]byte, usage string) {
	if len(args) != 5 && len(args) != 6 {
		w.Error(usage)
		return
	}
	numbers, wrong := throttleNumbers(args)
	if wrong > 0 {
		w.Error("ERR Couldn't parse as integer: " + excerpt(args[wrong]))
		return
	}
	if period := numbers[2]; !isPeriod(period) {
		w.Error(fmt.Sprintf("ERR period is %d: must be from 1 to %d seconds", period, mostSeconds))
		return
	}
	t.answer(w, args[1], limitOf(&numbers), numbers[3], cellNames)
}

// plan implements that of command for CL.THROTTLE: nothing may be wrong, and the plan is a known one.
func (t *throttle) plan(args [][]byte) (p *keyset.Plan, n int64) {
	if len(args) != 5 && len(args) != 6 {
		return nil, 0
	}
	numbers, wrong := throttleNumbers(args)
	if wrong > 0 || !isPeriod(numbers[2]) || numbers[3] <= 0 {
		return nil, 0
	}
	return t.plans.lookup(limitOf(&numbers)), numbers[3]
}

// throttleNumbers are max_burst, count, period and quantity. If wrong is not 0, it is the argument that is no integer.
func throttleNumbers(args [][]byte) (numbers [4]int64, wrong int) {
	numbers[3] = 1
	for i, arg := range args[2:] {
		n, ok := parseInt(arg)
		if !ok {
			return numbers, i + 2
		}
		numbers[i] = n
	}
	return numbers, 0
}

func isPeriod(seconds int64) bool { return seconds >= 0 && seconds <= mostSeconds }

// limitOf is the limit of numbers whose period is one.
func limitOf(numbers *[4]int64) limitKey {
	return limitKey{numbers[0], numbers[1], numbers[2] * int64(time.Second)}
}

// gcra returns GCRA key max-burst tokens-per-period period [TOKENS count].
func (t *throttle) gcra(w *resp.Writer, args [][]byte) {
	quantity := int64(1)
	switch {
	case len(args) == 7 && (equalFold(args[5], "tokens") || equalFold(args[5], "num_requests")):
		n, ok := parseInt(args[6])
		if !ok || n < 0 {
			w.Error("ERR TOKENS is " + excerpt(args[6]) + ": must be a whole number from 0 to 9223372036854775807")
			return
		}
		quantity = n
	case len(args) != 5:
		w.Error("ERR syntax error: must be GCRA key max-burst tokens-per-period period [TOKENS count]")
		return
	}
	burst, ok := parseInt(args[2])
	if !ok {
		w.Error("ERR Couldn't parse as integer: " + excerpt(args[2]))
		return
	}
	count, ok := parseInt(args[3])
	if !ok {
		w.Error("ERR Couldn't parse as integer: " + excerpt(args[3]))
		return
	}
	period, ok := parseSeconds(args[4])
	if !ok {
		w.Error(fmt.Sprintf("ERR period is %s: must be a number of seconds from 0.000000001 to %d, without exponent",
			excerpt(args[4]), mostSeconds))
		return
	}
	t.answer(w, args[1], limitKey{burst, count, period}, quantity, gcraNames)
}

// answer takes quantity permits of the key, looks if that is 0, and gives back if it is less.
func (t *throttle) answer(w *resp.Writer, key []byte, l limitKey, quantity int64, n names) {
	plan := t.plans.lookup(l)
	if plan == nil {
		var err error
		switch plan, err = t.plans.add(l, n); {
		case errors.Is(err, keyset.ErrTableFull) && quantity > 0: // as for a new key that finds no room
			d := weir.Decision{Limit: l.burst + 1, RetryAfter: time.Second}
			if quantity > d.Limit {
				d.RetryAfter = weir.Never
			}
			reply(w, &d)
			return
		case errors.Is(err, keyset.ErrTableFull):
			w.Error("ERR keys are held to 65534 other limits already: use fewer, or wait until the keys of some have all permits")
			return
		case err != nil:
			w.Error("ERR " + err.Error())
			return
		}
	}
	var d weir.Decision
	switch {
	case quantity > 0:
		d = plan.TakeBytes(key, quantity)
	case quantity == 0:
		d = plan.PeekBytes(key, 0)
	default:
		d = plan.RefundBytes(key, -max(quantity, -math.MaxInt64))
	}
	if quantity <= 0 {
		d.Allowed = true // nothing was asked for
	}
	reply(w, &d)
}

// reply writes the five integers, or why there are none.
func reply(w *resp.Writer, d *weir.Decision) {
	if d.Reason == weir.ReasonClosed || d.Reason == weir.ReasonInvalid {
		w.Error("ERR the limiter is closed")
		return
	}
	limited, retryAfter := int64(0), int64(-1)
	if !d.Allowed {
		limited = 1
		if d.RetryAfter != weir.Never {
			retryAfter = seconds(d.RetryAfter)
		}
	}
	w.Ints(limited, d.Limit, d.Remaining, retryAfter, seconds(d.ResetAfter))
}

// seconds is d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
