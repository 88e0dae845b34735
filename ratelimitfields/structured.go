package ratelimitfields

import (
	"encoding/base64"
	"fmt"
	"strconv"
)

// Structured field values as RFC 9651 defines them: the three types of which RateLimit and RateLimit-Policy consist.
const (
	// maxInteger is the largest Integer: 15 digits.
	maxInteger = 999_999_999_999_999
	// maxString is the length that every recipient of a String must be able to read.
	maxString = 1024
)

// checkString says why s cannot be a String, or returns nil.
func checkString(s string) error {
	if len(s) > maxString {
		return fmt.Errorf("has %d bytes: must have at most %d", len(s), maxString)
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return fmt.Errorf("has the byte %#02x at %d: must consist of printable ASCII characters", s[i], i)
		}
	}
	return nil
}

// appendString appends s, which checkString has accepted.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

// appendInteger appends n, held between 0 and maxInteger.
func appendInteger(dst []byte, n int64) []byte {
	return strconv.AppendInt(dst, held(n), 10)
}

func held(n int64) int64 { return min(max(n, 0), maxInteger) }

// appendBytes appends b as a Byte Sequence.
func appendBytes(dst, b []byte) []byte {
	dst = append(dst, ':')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, ':')
}
