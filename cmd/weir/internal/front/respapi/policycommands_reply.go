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
	tellFields(w, 0)
	tellDecision(w, &d, v.Binding >= 0, name)
}

// tellFields begins a decision that has some more fields than tellDecision writes.
func tellFields(w *resp.Writer, more int) {
	if w.Proto == resp.RESP3 {
		w.Map(7 + more)
	} else {
		w.Array(7 + more)
	}
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
	named := w.Proto == resp.RESP3
	if named {
		w.BulkString("allowed")
		w.Bool(d.Allowed)
		w.BulkString("limit")
	} else {
		w.Int(limited(d.Allowed))
	}
	w.Int(limit)
	if named {
		w.BulkString("remaining")
	}
	w.Int(remaining)
	if named {
		w.BulkString("retry_after_ms")
	}
	w.Int(retryAfter)
	if named {
		w.BulkString("reset_after_ms")
	}
	w.Int(milliseconds(d.ResetAfter))
	if named {
		w.BulkString("reason")
	}
	w.BulkString(d.Reason.String())
	if named {
		w.BulkString("policy")
	}
	if d.Policy != "" {
		w.BulkString(d.Policy)
	} else {
		w.Bulk(name) // it is not enforced
	}
}

// tellKept writes the fields of a reservation. Without an id there is none.
func tellKept(w *resp.Writer, id string, expires time.Duration) {
	named := w.Proto == resp.RESP3
	if named {
		w.BulkString("id")
	}
	if id == "" {
		w.Null()
	} else {
		w.BulkString(id)
	}
	if named {
		w.BulkString("expires_in_ms")
	}
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
