package checkapi

import (
	"strconv"
	"time"

	"github.com/weirhq/weir"
)

// appendDecision appends d as a JSON object without its end. policy is the name of the policy in JSON, limited whether d is that
// of a limit: otherwise limit and remaining are null.
func appendDecision(b []byte, d weir.Decision, policy string, limited bool) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"reason":"`...)
	b = append(b, d.Reason.String()...)
	b = append(b, `","policy":`...)
	b = append(b, policy...)
	if limited {
		b = append(b, `,"limit":`...)
		b = strconv.AppendInt(b, d.Limit, 10)
		b = append(b, `,"remaining":`...)
		b = strconv.AppendInt(b, d.Remaining, 10)
	} else {
		b = append(b, `,"limit":null,"remaining":null`...)
	}
	b = append(b, `,"retry_after":`...)
	b = appendSeconds(b, d.RetryAfter)
	b = append(b, `,"reset_after":`...)
	b = appendSeconds(b, d.ResetAfter)
	return b
}

// appendSeconds appends d in seconds, rounded up to a millisecond and without zeros at its end; null for weir.Never.
func appendSeconds(b []byte, d time.Duration) []byte {
	if d == weir.Never {
		return append(b, "null"...)
	}
	milliseconds := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		milliseconds++
	}
	b = strconv.AppendInt(b, milliseconds/1000, 10)
	fraction := milliseconds % 1000
	if fraction == 0 {
		return b
	}
	b = append(b, '.', byte('0'+fraction/100), byte('0'+fraction/10%10), byte('0'+fraction%10))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}
