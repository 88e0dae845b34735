package resp

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// longestInt is how many bytes an integer needs at most: its kind, a sign, 19 digits and the end of the line.
const longestInt = 23

// beginning is how an array of integers begins, up to its second one. Replies in a row mostly begin like the one before.
type beginning struct {
	count         int // how many integers the array has
	first, second int64
	size          int
	text          [64]byte
}

// Ints writes an array of integers. It is what Array and Int write, in a third of the time.
func (w *Writer) Ints(all ...int64) {
	b := slices.Grow(w.b, (1+len(all))*longestInt)
	at := len(b)
	b = b[:cap(b)]
	if len(all) >= 2 {
		s := &w.start
		if s.count != len(all) || s.first != all[0] || s.second != all[1] {
			s.set(all)
		}
		*(*[len(s.text)]byte)(b[at:]) = s.text
		at += s.size
		all = all[2:]
	} else {
		at = putInt(b, at, '*', int64(len(all)))
	}
	for _, n := range all {
		at = putInt(b, at, ':', n)
	}
	w.b = b[:at]
}

func (s *beginning) set(all []int64) {
	s.count, s.first, s.second = len(all), all[0], all[1]
	s.size = putInt(s.text[:], 0, '*', int64(s.count))
	s.size = putInt(s.text[:], s.size, ':', s.first)
	s.size = putInt(s.text[:], s.size, ':', s.second)
}

// putInt puts a kind, a number and the end of the line into b, which has room for the longest of them, and returns where they
// end. What follows them there is lost.
func putInt(b []byte, at int, kind byte, n int64) int {
	u := uint64(n)
	if n < 0 {
		b[at] = kind
		at++
		kind, u = '-', -u
	}
	if u >= tenToThe8 {
		at = putInt(b, at, kind, int64(u/tenToThe8)) - len("\r\n")
		binary.LittleEndian.PutUint64(b[at:], eight(u%tenToThe8)|zeros)
		at += 8
		b[at], b[at+1] = '\r', '\n'
		return at + len("\r\n")
	}
	p := (*[16]byte)(b[at:]) // one check for all that follows
	if u < 10 {
		binary.LittleEndian.PutUint32(p[:], uint32(kind)|uint32(u)<<8|'0'<<8|'\r'<<16|'\n'<<24)
		return at + 4
	}
	all := eight(u)
	none := bits.TrailingZeros64(all) &^ 7 // the bits of the zeros in front
	p[0] = kind
	binary.LittleEndian.PutUint64(p[1:], (all|zeros)>>none)
	end := (9 - none/8) & 15
	p[end], p[(end+1)&15] = '\r', '\n'
	return at + end + len("\r\n")
}

const tenToThe8 = 100_000_000

// zeros are eight digits 0.
const zeros = 0x3030303030303030

// eight are the eight digits of a number below tenToThe8, the first in the lowest byte. It halves the number three times, and all
// parts at once. A quotient is a product with the inverse of the divisor, which is exact for numbers so small
// (TestNumbersOfAllLengths).
func eight(u uint64) uint64 {
	fours := u/10_000 | u%10_000<<32
	hundreds := fours * 10486 >> 20 & 0x0000007f_0000007f
	twos := hundreds | (fours-100*hundreds)<<16
	tens := twos * 103 >> 10 & 0x000f_000f_000f_000f
	return tens | (twos-10*tens)<<8
}
