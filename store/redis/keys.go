package redis

import (
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// Between the brace that closes the key and the policy stands what is kept there, after the letter of an algorithm other than a
// token bucket.
const (
	kindRecord       = ':'
	kindReservations = '+'
	kindDue          = '!'
)

// key is the name under which the server keeps something of a charge.
func (s *Store) key(c *store.Charge, kind byte) string {
	var buf [128]byte
	return string(appendKey(buf[:0], s.options.Prefix, c.Policy, c.Key, c.Limit.Algorithm(), kind))
}

// keysOfAll are all names under which the server keeps something of a key of a policy, whatever the algorithm. They are of one
// slot.
func (s *Store) keysOfAll(policy, key string) []string {
	names := make([]string, 0, 3*limits.Algorithms)
	for a := range limits.Algorithms {
		for _, kind := range []byte{kindRecord, kindReservations, kindDue} {
			names = append(names, string(appendKey(nil, s.options.Prefix, policy, key, a, kind)))
		}
	}
	return names
}

// appendKey appends the name under which the server keeps something of a key of a policy: prefix{key}kind policy, with the letter
// of the algorithm before the kind if that is no token bucket, so that each has a record of its own. The braces make the text of
// the key alone decide about the slot in a cluster. In the key, % and } are written %25 and %7D, so that different keys never get
// the same name; the empty key is written %.
func appendKey(buf []byte, prefix, policy, key string, a weir.Algorithm, kind byte) []byte {
	buf = append(buf, prefix...)
	buf = append(buf, '{')
	switch {
	case key == "":
		buf = append(buf, '%')
	case strings.IndexByte(key, '%') < 0 && strings.IndexByte(key, '}') < 0:
		buf = append(buf, key...)
	default:
		for i := range len(key) {
			switch key[i] {
			case '%':
				buf = append(buf, "%25"...)
			case '}':
				buf = append(buf, "%7D"...)
			default:
				buf = append(buf, key[i])
			}
		}
	}
	buf = append(buf, '}')
	buf = append(append(buf, limits.Prefix(a)...), kind)
	return append(buf, policy...)
}

// slotOf is the slot of a name in a cluster.
func slotOf(name string) uint16 {
	if i := strings.IndexByte(name, '{'); i >= 0 {
		if j := strings.IndexByte(name[i+1:], '}'); j > 0 {
			name = name[i+1 : i+1+j]
		}
	}
	crc := uint16(0) // CRC-16 in its XMODEM form
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}
