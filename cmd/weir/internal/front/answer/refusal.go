package answer

import (
	"net/http"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// RefusalField is the field of the header in which a client gets the ID of its refusal.
const RefusalField = "Weir-Refusal"

// appendID appends an ID as clients see it: 16 hexadecimal digits.
func appendID(b []byte, id uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[id>>shift&15])
	}
	return b
}

// FormatRefusal is an ID as clients see it.
func FormatRefusal(id uint64) string {
	var b [16]byte
	return string(appendID(b[:0], id))
}

// ParseRefusal is the inverse of FormatRefusal.
func ParseRefusal(text string) (id uint64, ok bool) {
	if len(text) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(text, 16, 64)
	return id, err == nil
}

// TellRefusal tells a client the ID of its refusal, if it has one.
func TellRefusal(h http.Header, id uint64) {
	if id != 0 {
		h[RefusalField] = []string{FormatRefusal(id)}
	}
}

// Close makes a verdict that of a server which ends: another one can be asked at once.
func Close(v *policy.Verdict) {
	v.Allowed = false
	if p, ok := v.BindingPart(); ok {
		d := &p.Decision
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonClosed, 0
	}
}
