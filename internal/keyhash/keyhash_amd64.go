package keyhash

import (
	"math/rand/v2"
	"unsafe"
)

// String returns the halves of the hash of a text. One of up to mostBytes is hashed by rounds of AES, under keys that the process
// draws by chance:
//
//	E_i(x) = four rounds under keys of their own
//	hash   = two more rounds of E_0(first ^ lengths[n]) ^ E_1(second ^ white_1) ^ E_2(third ^ white_2) ^ E_3(fourth ^ white_3)
//
// The blocks overlap where the text does not fill them: there is one of up to 16 bytes, two of up to 32, and else four. Two
// texts of different lengths are told apart by lengths alone. Two of the same length differ in a block, and four such rounds
// make a given other difference of it less often than once in 2^113 (Keliher and Sui 2007), whichever texts a client chooses:
// it does not know the keys. Texts of one block and one length have different hashes. That 111 of the 128 bits agree no more
// often than those of random numbers is not proven, and TestPartsOfTheHashesAreIndependent finds nothing else.
//
//go:noescape
func String(key string) (a, b uint64)

// mostBytes is how long a text may be that is hashed by rounds. keyhash_amd64.s has it as well.
const mostBytes = 64

// secrets are the keys of the rounds, in the order in which keyhash_amd64.s has them.
type secrets struct {
	lengths [mostBytes + 1]block
	first   [4]block // E_0
	others  [3]struct {
		white  block
		rounds [4]block
	}
	last [2]block
}

type block [2]uint64

var secret = drawn() //nolint:gochecknoglobals // those of the process

// drawn returns keys from the generator that maphash has its seeds from: ChaCha8, seeded by the system.
func drawn() (s secrets) {
	words := (*[unsafe.Sizeof(s) / 8]uint64)(unsafe.Pointer(&s)) //nolint:gosec // it is words all over
	for i := range words {
		words[i] = rand.Uint64() //nolint:gosec // see above
	}
	return s
}

var hasAES = supported()

// supported reports whether the processor has the instructions of the rounds: AES, and SSE 4.1.
func supported() bool
