package respapi

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/policy"
)

// tellVerdict writes the decision that binds, of a check of the policy with this name.
func tellVerdict(w *resp.Writer, v *policy.Verdict, name []byte) {
	d := v.Decision()
	w.Fields(decisionFields)
	tellDecision(w, &d, v.Binding >= 0, name)
}

// decisionFields is how many fields tellDecision writes.
const decisionFields = 7

// tellAllowed writes whether something is allowed: in version 2 of the protocol 0 if it is, as redis-cell does.
func tellAllowed(w *resp.Writer, allowed bool) {
	if w.Field("allowed"); w.Proto == resp.RESP3 {
		w.Bool(allowed)
		return
	}
	w.Int(limited(allowed))
}

// tellDecision writes a decision: a map in version 3 of the protocol, in version 2 the values alone, in the order of redis-cell.
// held reports whether it is that of a limit.
func tellDecision(w *resp.Writer, d *weir.Decision, held bool, name []byte) {
	limit, remaining := int64(-1), int64(-1)
	if held {
		limit, remaining = d.Limit, d.Remaining
	}
	retryAfter := int64(-1)
	if !d.Allowed && d.RetryAfter != weir.Never {
		retryAfter = milliseconds(d.RetryAfter)
	}
	tellAllowed(w, d.Allowed)
	w.Field("limit")
	w.Int(limit)
	w.Field("remaining")
	w.Int(remaining)
	w.Field("retry_after_ms")
	w.Int(retryAfter)
	w.Field("reset_after_ms")
	w.Int(milliseconds(d.ResetAfter))
	w.Field("reason")
	w.BulkString(d.Reason.String())
	w.Field("policy")
	if d.Policy != "" {
		w.BulkString(d.Policy)
	} else {
		w.Bulk(name) // it is not enforced
	}
}

// answerTo is the decision on one of the requests of v by its own limits, with -1 for what remains where that is not known, as
// the store of the limit was not asked. Held is false if no limit applies.
func answerTo(v *policy.Verdict, request int) (d weir.Decision, held bool) {
	d, held = v.Answer(request)
	if !d.Allowed {
		return d, held
	}
	for i := range v.Parts {
		if p := &v.Parts[i]; p.Request == request && p.Unasked && p.Decision == d {
			d.Remaining = -1
			break
		}
	}
	return d, held
}

// tellKept writes the fields of a reservation. Without an id there is none.
func tellKept(w *resp.Writer, id string, expires time.Duration) {
	w.Field("id")
	if id == "" {
		w.Null()
	} else {
		w.BulkString(id)
	}
	w.Field("expires_in_ms")
	w.Int(milliseconds(expires))
}

func limited(allowed bool) int64 {
	if allowed {
		return 0
	}
	return 1
}

// milliseconds is d in milliseconds, rounded up.
func milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
