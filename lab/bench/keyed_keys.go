package bench

import (
	"math/rand/v2"
	"strconv"
	"unsafe"
)

// appendKey appends the i-th key, the text of an IPv4 address. No two of 2^32 are equal, and keys that follow one another
// have little in common.
func appendKey(b []byte, i int) []byte {
	const odd = 2654435769 // so that the product is another one for each i
	a := uint32(i) * odd   // meant to wrap
	for shift := 24; shift >= 0; shift -= 8 {
		b = strconv.AppendUint(b, uint64(a>>shift&255), 10)
		if shift > 0 {
			b = append(b, '.')
		}
	}
	return b
}

// longestKey is the length of 255.255.255.255.
const longestKey = 15

// keyArray is a list of keys in the order in which they are asked for. They are read one after the other, headers and
// text alike, so that a key is in the cache when it is asked for, as one is that has just been received. All of it lies
// outside the heap.
type keyArray struct {
	keys []string
	free func()
}

const headerBytes = int(unsafe.Sizeof(""))

// newKeyArray makes an array of n keys, the i-th of which is key number index(i).
func newKeyArray(n int, index func(i int) int) keyArray {
	headers, freeHeaders := offHeap(n * headerBytes)
	texts, freeTexts := offHeap(n * longestKey)
	keys := unsafe.Slice((*string)(unsafe.Pointer(&headers[0])), n) //nolint:gosec // pages are aligned to more than a string
	at := texts[:0]
	for i := range keys {
		from := len(at)
		at = appendKey(at, index(i))
		keys[i] = unsafe.String(&at[from], len(at)-from) //nolint:gosec // not changed until it is freed
	}
	return keyArray{keys, func() { freeHeaders(); freeTexts() }}
}

// arrayLength is how many keys an array has that is asked again and again: a multiple of a batch.
func arrayLength(keys int) int { return max(batch, min(1<<22, 4*keys)/batch*batch) }

// uniformKeys asks for each of n keys equally often.
func uniformKeys(n int) keyArray {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same keys for all
	return newKeyArray(arrayLength(n), func(int) int { return rng.IntN(n) })
}

// zipfExponent is how unequally often keys are asked for: the k-th most frequent one as often as k^-1.1 says.
const zipfExponent = 1.1

// zipfKeys asks for some of n keys much more often than for others. Those lie anywhere among the others.
func zipfKeys(n int) keyArray {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same keys for all
	zipf := rand.NewZipf(rng, zipfExponent, 1, uint64(n-1))
	const step = 618_033_989 // so that neighbors in rank are none in the order of insertion
	return newKeyArray(arrayLength(n), func(int) int { return int(zipf.Uint64() * step % uint64(n)) })
}

// freshKeys are n keys, each once, beginning with key number from.
func freshKeys(from, n int) keyArray {
	return newKeyArray(n, func(i int) int { return from + i })
}

// ownKeys calls use with keys from, from+1, ... of which each is a string of its own on the heap, as the key of a request
// is, so that a limiter which keeps a key keeps the memory of its text alive.
func ownKeys(from, n int, use func(keys []string)) {
	keys := make([]string, 0, batch)
	text := make([]byte, 0, longestKey)
	for i := range n {
		text = appendKey(text[:0], from+i)
		keys = append(keys, string(text))
		if len(keys) == batch || i == n-1 {
			use(keys)
			keys = keys[:0]
		}
	}
	clear(keys[:cap(keys)])
}
