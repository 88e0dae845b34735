package front

import (
	"strings"
	"unicode/utf8"
)

// GRPCMessage is a text as the field grpc-message has it: percent-encoded UTF-8.
func GRPCMessage(text string) string {
	const hex = "0123456789ABCDEF"
	plain := true
	for i := range len(text) {
		plain = plain && isPlain(text[i])
	}
	if plain {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		for _, c := range utf8.AppendRune(nil, r) {
			if isPlain(c) {
				b.WriteByte(c)
			} else {
				b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			}
		}
	}
	return b.String()
}

func isPlain(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
