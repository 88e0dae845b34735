package answer

import (
	"strings"
)

// OverField is the field of the header in which a service gets the names of the policies with mode: tag that a request is over.
const OverField = "Weir-Over"

// FormatOver is the value of OverField: a list of strings of RFC 9651.
func FormatOver(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('"')
		for _, c := range []byte(name) {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	return b.String()
}
