package keyhash

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// substitute is the table of AES, worked out from its definition.
var substitute = func() (table [256]byte) {
	for x := range table {
		var inverse byte
		for y := range 256 {
			if times(byte(x), byte(y)) == 1 {
				inverse = byte(y)
			}
		}
		table[x] = 0x63
		for i := range 5 {
			table[x] ^= bits.RotateLeft8(inverse, i)
		}
	}
	return table
}()

// times is the product in the field of AES.
func times(x, y byte) (product byte) {
	for ; y > 0; y >>= 1 {
		if y&1 > 0 {
			product ^= x
		}
		high := x >> 7
		x = x<<1 ^ high*0x1B
	}
	return product
}

// round is a round of AES: what AESENC does.
func round(x, key block) block {
	in, out := x.bytes(), [16]byte{}
	for column := range 4 {
		var shifted [4]byte
		for row := range 4 {
			shifted[row] = substitute[in[(column+row)%4*4+row]]
		}
		for row := range 4 {
			out[4*column+row] = times(shifted[row], 2) ^ times(shifted[(row+1)%4], 3) ^ shifted[(row+2)%4] ^ shifted[(row+3)%4]
		}
	}
	return blockOf(out[:]).xor(key)
}

func (x block) bytes() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], x[0])
	binary.LittleEndian.PutUint64(b[8:], x[1])
	return b
}

func (x block) xor(y block) block { return block{x[0] ^ y[0], x[1] ^ y[1]} }

func blockOf(b []byte) block {
	return block{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// inGo is String of up to mostBytes as its comment describes it.
func inGo(text []byte) (a, b uint64) {
	n := len(text)
	blocks := make([]block, 1, 4)
	switch {
	case n >= 33:
		blocks = []block{blockOf(text), blockOf(text[n-16:]), blockOf(text[16:]), blockOf(text[n-32:])}
	case n >= 17:
		blocks = []block{blockOf(text), blockOf(text[n-16:])}
	case n >= 8:
		blocks[0] = block{binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[n-8:])}
	case n >= 4:
		blocks[0][0] = uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	case n > 0:
		blocks[0][0] = uint64(text[0]) | uint64(text[n/2])<<8 | uint64(text[n-1])<<16
	}
	var sum block
	for i, x := range blocks {
		white, keys := secret.lengths[n], secret.first
		if i > 0 {
			white, keys = secret.others[i-1].white, secret.others[i-1].rounds
		}
		x = x.xor(white)
		for _, key := range keys {
			x = round(x, key)
		}
		sum = sum.xor(x)
	}
	for _, key := range secret.last {
		sum = round(sum, key)
	}
	return sum[0], sum[1]
}

func TestRoundOfAES(t *testing.T) {
	// FIPS 197, appendix B: from the state at the start of round 1 to that at the start of round 2.
	x := blockOf([]byte("\x19\x3d\xe3\xbe\xa0\xf4\xe2\x2b\x9a\xc6\x8d\x2a\xe9\xf8\x48\x08"))
	key := blockOf([]byte("\xa0\xfa\xfe\x17\x88\x54\x2c\xb1\x23\xa3\x39\x39\x2a\x6c\x76\x05"))
	want := blockOf([]byte("\xa4\x9c\x7f\xf2\x68\x9f\x35\x2b\x6b\x5b\xea\x43\x02\x6a\x50\x49"))
	if got := round(x, key); got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestRoundsAreThoseInGo compares the instructions with the definition, for texts of each length. Where the processor has none for
// AES, it compares with maphash.
func TestRoundsAreThoseInGo(t *testing.T) {
	for n := range mostBytes + 1 {
		text := make([]byte, n)
		for range 50 {
			for i := range text {
				text[i] = byte(rand.Uint32())
			}
			same(t, text)
		}
	}
}

// TestWithoutAES hashes with maphash where the processor has no AES.
func TestWithoutAES(t *testing.T) {
	defer func(has bool) { hasAES = has }(hasAES)
	hasAES = false
	a, b := String("key")
	if x, y := twice("key"); x != a || y != b {
		t.Error("these are not the hashes of maphash")
	}
}

func same(t *testing.T, text []byte) {
	t.Helper()
	a, b := String(string(text))
	x, y := twice(string(text))
	if hasAES {
		x, y = inGo(text)
	}
	if a != x || b != y {
		t.Fatalf("%d bytes %x: %x %x, want %x %x", len(text), text, a, b, x, y)
	}
}

func FuzzRounds(f *testing.F) {
	f.Add([]byte("203.0.113.7"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		same(t, text[:min(len(text), mostBytes)])
	})
}
