package checkapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// appendDecision appends d as a JSON object without its end. name is that of the policy, null if that is "", limited
// whether d is the decision of a limit: otherwise limit and remaining are null. So is remaining if it is below 0: see shown.
func appendDecision[T string | []byte](b []byte, d weir.Decision, name T, limited bool) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"reason":"`...)
	b = append(b, d.Reason.String()...)
	b = append(b, `","policy":`...)
	if len(name) > 0 {
		b = appendQuoted(b, name)
	} else {
		b = append(b, "null"...)
	}
	if limited {
		b = append(b, `,"limit":`...)
		b = strconv.AppendInt(b, d.Limit, 10)
		b = append(b, `,"remaining":`...)
		if d.Remaining < 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendInt(b, d.Remaining, 10)
		}
	} else {
		b = append(b, `,"limit":null,"remaining":null`...)
	}
	b = append(b, `,"retry_after":`...)
	b = appendSeconds(b, d.RetryAfter)
	b = append(b, `,"reset_after":`...)
	b = appendSeconds(b, d.ResetAfter)
	return b
}

// shown is the decision of a part, with -1 for what remains where that is not known, as its store was not asked.
func shown(p *policy.Part) weir.Decision {
	d := p.Decision
	if p.Unasked && d.Allowed {
		d.Remaining = -1
	}
	return d
}

// answerOf is the decision that binds among those on one of the requests of a verdict, and its place among them: -1 if no limit
// has decided.
func answerOf(v *policy.Verdict, request int) (d weir.Decision, place int) {
	at := v.Binding
	bound := at >= 0 && at < len(v.Parts)
	if !bound && v.Decision().Reason != weir.ReasonDenied {
		return v.Decision(), -1
	}
	if !bound || v.Parts[at].Request != request {
		// Another one was refused, so this one has what the engine says about its own limits, if there are any.
		var own bool
		d, own = v.Answer(request)
		at = slices.IndexFunc(v.Parts, func(p policy.Part) bool { return p.Request == request && p.Decision == d })
		if !own || at < 0 {
			return d, -1
		}
	}
	for i := range at {
		if v.Parts[i].Request == request {
			place++
		}
	}
	return shown(&v.Parts[at]), place
}

// appendChecked appends the answer to a check of a policy, which is one of the requests of a verdict, without its end.
func appendChecked(b []byte, v *policy.Verdict, request int, name []byte) []byte {
	d, place := answerOf(v, request)
	if d.Policy == "" { // it is not enforced
		return appendDecision(b, d, name, place >= 0)
	}
	return appendDecision(b, d, d.Policy, place >= 0)
}

// appendVerdict appends the decision that binds among those on one of the requests of a verdict, and all of them, without the
// end. Where there is none, as for a request that is exempt, there is no policy, no limit and nothing that remains.
func appendVerdict(b []byte, v *policy.Verdict, request int) []byte {
	d, place := answerOf(v, request)
	b = appendDecision(b, d, d.Policy, place >= 0)
	b = append(b, `,"exempt":`...)
	b = strconv.AppendBool(b, v.ExemptOf(request))
	if rule := v.DeniedBy(request); rule != nil {
		b = append(b, `,"denied_by":`...)
		b = appendQuoted(b, rule.Name)
	}
	b = append(b, `,"binding":`...)
	if place >= 0 {
		b = strconv.AppendInt(b, int64(place), 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"decisions":[`...)
	first := true
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Request != request {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendDecision(b, shown(p), p.Decision.Policy, true)
		b = append(b, `,"rule":`...)
		if p.Rule != nil {
			b = appendQuoted(b, p.Rule.Name)
		} else {
			b = append(b, "null"...)
		}
		b = append(b, `,"key":`...)
		b = appendQuoted(b, p.Key)
		b = append(b, `,"cost":`...)
		b = strconv.AppendInt(b, p.Cost, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendQuoted appends text in JSON.
func appendQuoted[T string | []byte](b []byte, text T) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(string(text))
			if err != nil { // a string can always be encoded
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
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
