// Package keytext makes texts of requests fit to be keys: bounded, spelled in one way, and joined so that different parts
// never make the same key.
package keytext

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	// MaxPart is the length in bytes up to which a part of a key is kept as it is.
	MaxPart = 128
	// keptOfLong is how much of a longer one is kept, before its hash.
	keptOfLong = 60
	// Missing stands for a client that is not known.
	Missing = "-"
	// Separator stands between the parts of a key.
	Separator = ','
)

// ofLong stands between the beginning and the hash. They are longer than MaxPart together, so that no part which is kept as
// it is looks like this.
const ofLong = "...sha256:"

// MaxWhole is the length in bytes up to which Whole keeps a key as it is.
const MaxWhole = 256

// Whole replaces a long key by one that a client cannot send, so that it equals no other.
func Whole(key string) string {
	if len(key) <= MaxWhole {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "\x00sha256\x00" + string(sum[:])
}

// AppendPart appends s, or the first 60 bytes and the SHA-256 that stand for it if it is longer than MaxPart.
func AppendPart[S string | []byte](b []byte, s S) []byte {
	if len(s) <= MaxPart {
		return append(b, s...)
	}
	sum := sha256.Sum256([]byte(s))
	b = append(b, s[:keptOfLong]...)
	b = append(b, ofLong...)
	return hex.AppendEncode(b, sum[:])
}

// StandsForLong reports whether s has the form of what AppendPart makes of a long part.
func StandsForLong[S string | []byte](s S) bool {
	const hash = keptOfLong + len(ofLong)
	if len(s) != hash+hex.EncodedLen(sha256.Size) || string(s[keptOfLong:hash]) != ofLong {
		return false
	}
	for _, c := range []byte(s[hash:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Bound replaces the part of b that begins at start by what AppendPart makes of it.
func Bound(b []byte, start int) []byte {
	if len(b)-start <= MaxPart {
		return b
	}
	sum := sha256.Sum256(b[start:])
	b = append(b[:start+keptOfLong], ofLong...)
	return hex.AppendEncode(b, sum[:])
}

// Escape puts a backslash before each separator and each backslash in the part of b that begins at start. Parts that are
// escaped and joined by the separator are the same only if each of them is.
func Escape(b []byte, start int) []byte {
	special := 0
	for _, c := range b[start:] {
		if c == Separator || c == '\\' {
			special++
		}
	}
	if special == 0 {
		return b
	}
	from := len(b) - 1
	for range special {
		b = append(b, 0)
	}
	for to := len(b) - 1; from >= start; from, to = from-1, to-1 {
		b[to] = b[from]
		if c := b[from]; c == Separator || c == '\\' {
			to--
			b[to] = '\\'
		}
	}
	return b
}
