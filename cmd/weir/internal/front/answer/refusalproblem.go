package answer

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/policy"
)

// OfRefusal is the problem detail of a refusal. seconds are those of Retry-After, as [Fields.Tell] returns them. Its Status is
// 429 if the client used up its quota, 503 if there is no room for any client or the decision could not be made, and 403 if a
// rule denies the request. Only if tells is set it names policies and tells their limits.
func OfRefusal(v *policy.Verdict, seconds int64, tells bool) httplimit.Problem {
	d := v.Decision()
	if d.Reason == weir.ReasonDenied {
		return httplimit.Problem{
			Type: "about:blank", Title: http.StatusText(http.StatusForbidden), Status: http.StatusForbidden,
			Detail: "This request is not allowed here, whenever it comes.",
		}
	}
	p := httplimit.Problem{
		Type:  httplimit.QuotaExceeded,
		Title: "Request cannot be satisfied as assigned quota has been exceeded", Status: http.StatusTooManyRequests,
		RetryAfter: seconds,
	}
	if tells {
		p.ViolatedPolicies = violated(v)
	}
	wait := ""
	if seconds > 0 {
		wait = "; retry after " + inwords.After(inwords.Seconds(seconds), time.Now())
	}
	limit := "the limit"
	if part, ok := v.BindingPart(); ok && tells {
		if applied := part.Applied(); applied != (weir.Limit{}) {
			limit += " of " + applied.String()
		}
	}
	switch d.Reason {
	case weir.ReasonNever:
		p.Detail = "The request costs more than " + limit + " grants at once; no wait helps."
	case weir.ReasonInvalid:
		p.Detail = "No limit can be asked about the request: it leads to more than 64 keys, or costs what no request can cost."
	case weir.ReasonHardLockout:
		p.Detail = "T" + limit[1:] + " was exceeded too often" + wait + "."
	case weir.ReasonTableFull, weir.ReasonClosed, weir.ReasonUnavailable:
		p.Type, p.Status = httplimit.TemporaryReducedCapacity, http.StatusServiceUnavailable
		p.Title = "Request cannot be satisfied due to temporary server capacity constraints"
		p.Detail = "The limit cannot be decided at the moment" + wait + "."
	default:
		p.Detail = "T" + limit[1:] + " is exceeded" + wait + "."
	}
	return p
}

// violated are the names of the limits that have refused, that which binds first.
func violated(v *policy.Verdict) []string {
	var few [8]int
	var names []string
	for _, i := range parts(few[:0], v) {
		if d := &v.Parts[i].Decision; !d.Allowed {
			names = append(names, d.Policy)
		}
	}
	return names
}

// JSON is a problem detail in one line, without a line ending, in ASCII but for what a policy is named. All of it can stand in
// a header field.
func JSON(p httplimit.Problem) []byte {
	text, err := json.Marshal(p)
	if err != nil { // a struct of strings and integers can always be encoded
		return []byte("{}")
	}
	return text
}
