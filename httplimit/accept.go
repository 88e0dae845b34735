package httplimit

import "strings"

// prefersText reports whether a client would rather have text/plain than JSON, from the values of its Accept fields.
func prefersText(accept []string) bool {
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*" {
		return false
	}
	var text, problem preference
	for _, field := range accept {
		for item := range strings.SplitSeq(field, ",") {
			mediaRange, parameters, _ := strings.Cut(item, ";")
			kind, subtype, ok := strings.Cut(strings.ToLower(strings.TrimSpace(mediaRange)), "/")
			if !ok {
				continue
			}
			q := quality(parameters)
			switch {
			case kind == "*" && subtype == "*":
				text.offer(1, q)
				problem.offer(1, q)
			case kind == "text" && subtype == "*":
				text.offer(2, q)
			case kind == "application" && subtype == "*":
				problem.offer(2, q)
			case kind == "text" && subtype == "plain":
				text.offer(4, q)
			case kind == "application" && subtype == "json":
				problem.offer(3, q)
			case kind == "application" && subtype == "problem+json":
				problem.offer(4, q)
			}
		}
	}
	return text.quality > problem.quality
}

// preference is the quality of a media type by the most specific range that matches it.
type preference struct{ specific, quality int }

func (p *preference) offer(specific, quality int) {
	if specific > p.specific || specific == p.specific && quality > p.quality {
		p.specific, p.quality = specific, quality
	}
}

// quality is the parameter q in thousandths; 1000 if there is none, 0 if it cannot be read.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		whole, decimals, _ := strings.Cut(strings.TrimSpace(value), ".")
		if len(whole) != 1 || whole[0] > '1' || whole[0] < '0' || len(decimals) > 3 {
			return 0
		}
		thousandths := int(whole[0]-'0') * 1000
		for i, scale := 0, 100; i < len(decimals); i, scale = i+1, scale/10 {
			if decimals[i] < '0' || decimals[i] > '9' {
				return 0
			}
			thousandths += int(decimals[i]-'0') * scale
		}
		return min(thousandths, 1000)
	}
	return 1000
}
