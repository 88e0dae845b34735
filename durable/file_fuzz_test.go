package durable

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// FuzzFile: whatever a file is, it is refused as damaged, or what it says is a beginning of it, which is read in the same way
// again when the write at its end that was not finished is cut off. Nothing is made up.
func FuzzFile(f *testing.F) {
	frame := func(kind byte, number uint64, says func(b []byte) []byte) []byte {
		return endFrame(says(beginFrame(nil, kind, number)))
	}
	start := func(records int64) []byte {
		return slices.Concat([]byte(fileHead), frame(frameStart, 1, func(b []byte) []byte { return appendCounts(b, 3, 7, records) }))
	}
	write := func(number uint64, revision int64, writes ...Write) []byte {
		return frame(frameWrites, number, func(b []byte) []byte { return appendWrites(b, revision, writes) })
	}
	term := frame(frameTerm, 2, func(b []byte) []byte { return appendCounts(b, 4) })
	records := frame(frameRecords, 2, func(b []byte) []byte {
		return appendString(appendCounts(appendString(b, "name"), 5), []byte("value"))
	})
	whole := slices.Concat(start(0), term, write(3, 8, Write{Name: "a", Value: []byte("1")}, Write{Name: "b"}))
	for _, seed := range [][]byte{
		nil, []byte(fileHead), start(0), start(1), slices.Concat(start(1), records), whole, whole[:len(whole)-3],
		slices.Concat(whole, make([]byte, 20)), slices.Concat(whole, whole),
	} {
		f.Add(seed, uint(0), byte(0))
		f.Add(seed, uint(len(seed)/2), byte(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint, flip byte) {
		if at < uint(len(data)) {
			data = slices.Clone(data)
			data[at] ^= flip
		}
		c, size, torn, err := readContents(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrDamaged) || c != nil {
				t.Fatalf("%v, %v", c, err)
			}
			return
		}
		if size < int64(len(fileHead)) || torn < 0 || size+torn != int64(len(data)) || c.epoch < 0 || c.revision < 0 || c.owed > 0 {
			t.Fatalf("%d and %d of %d bytes: %+v", size, torn, len(data), c)
		}
		again, size2, torn2, err := readContents(bytes.NewReader(data[:size]))
		if err != nil || size2 != size || torn2 != 0 || again.epoch != c.epoch || again.revision != c.revision ||
			again.frames != c.frames || again.records.count != c.records.count {
			t.Fatalf("cut off at %d: %+v, %v, want %+v", size, again, err, c)
		}
	})
}
