package rlsapi

import "unsafe"

// texts are the memory that strings of requests are parts of. What is done with a request that is refused or fails may keep
// strings of it, so that their memory is never written again. Those of a request that was simply allowed are kept by nothing
// (TestNamesOutliveTheirRequests).
type texts struct {
	b    []byte
	from int // where those of the current request begin
}

// textsSize is how many bytes there are at a time.
const textsSize = 4 << 10

// room makes room for n bytes.
func (t *texts) room(n int) {
	if cap(t.b)-len(t.b) < n {
		t.b, t.from = make([]byte, 0, max(n, textsSize)), 0
	}
}

// keep is b as a string.
func (t *texts) keep(b []byte) string {
	t.room(len(b))
	from := len(t.b)
	t.b = append(t.b, b...)
	return t.since(from)
}

// since is a string of what was appended since there were so many bytes.
func (t *texts) since(from int) string {
	b := t.b[from:]
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b is not written while anything has the string
}

// release ends a request. If nothing keeps a string of it, the next one has their memory.
func (t *texts) release(unkept bool) {
	if unkept {
		t.b = t.b[:t.from]
	}
	t.from = len(t.b)
}
