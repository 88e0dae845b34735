package redis

import "strings"

// Between the brace that closes the key and the policy stands what is kept there.
const (
	kindRecord       = ':'
	kindReservations = '+'
	kindDue          = '!'
)

// appendKey appends the name under which the server keeps something of a key of a policy: prefix{key}kind policy. The
// braces make the text of the key alone decide about the slot in a cluster. In the key, % and } are written %25 and
// %7D, so that different keys never get the same name; the empty key is written %.
func appendKey(buf []byte, prefix, policy, key string, kind byte) []byte {
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
	buf = append(buf, '}', kind)
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
