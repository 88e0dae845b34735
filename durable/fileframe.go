package durable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A file is its head and frames. A frame is the length of its body, the checksum of these four bytes, the body, the checksum of
// the body, and a last byte which is not zero: checksums are CRC-32C, big endian. A body is its kind, the number of the frame,
// which is that of the one before and one, and what it says.
//
// Each frame is on disk before the next one is written. So nothing but the last one can be torn by a crash, and a file that is
// wrong anywhere else, or in another way than a write that was not finished, is damaged.

const (
	// fileHead begins a file. Its last byte is the version of the format.
	fileHead = "weir limits\x00\x00\x00\x00\x01"
	// frameHead and frameTail are the bytes around a body.
	frameHead, frameTail = 8, 5
	frameEnd             = 0xa5
	// mostBody is more than any body has.
	mostBody = 2*MostBytes + 64*MostWrites
	// recordOverhead is about how many bytes a record has beside its name and its value.
	recordOverhead = 16
)

// The kinds of frames.
const (
	// frameStart is the first one: the epoch, the revision, and how many records follow.
	frameStart byte = 1 + iota
	// frameRecords has some of these records.
	frameRecords
	// frameTerm begins a term: its epoch.
	frameTerm
	// frameWrites is one call of Store: the revision, and what was written.
	frameWrites
)

func recordBytes(r *Named) int64 { return int64(len(r.Name) + len(r.Value) + recordOverhead) }

// beginFrame appends to b the head of a frame, to be filled in by endFrame, and the beginning of its body.
func beginFrame(b []byte, kind byte, number uint64) []byte {
	b = append(b, make([]byte, frameHead)...)
	return binary.AppendUvarint(append(b, kind), number)
}

// endFrame completes b, which is one frame.
func endFrame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-frameHead))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[:4], castagnoli))
	return append(binary.BigEndian.AppendUint32(b, crc32.Checksum(b[frameHead:], castagnoli)), frameEnd)
}

// appendCounts appends numbers that are not negative.
func appendCounts(b []byte, all ...int64) []byte {
	for _, n := range all {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// appendWrites appends what a frame of writes says. A value has its length and one, so that 0 is none.
func appendWrites(b []byte, revision int64, writes []Write) []byte {
	b = appendCounts(b, revision, int64(len(writes)))
	for i := range writes {
		w := &writes[i]
		b = appendString(b, w.Name)
		if w.Value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(w.Value))+1)
		b = append(b, w.Value...)
	}
	return b
}

// body is what is left of one.
type body struct {
	b   []byte
	bad bool
}

func (b *body) number() uint64 {
	n, size := binary.Uvarint(b.b)
	if size <= 0 {
		b.bad, b.b = true, nil
		return 0
	}
	b.b = b.b[size:]
	return n
}

func (b *body) take(n uint64) []byte {
	if n > uint64(len(b.b)) {
		b.bad, b.b = true, nil
		return nil
	}
	s := b.b[:n]
	b.b = b.b[n:]
	return s
}

func (b *body) text() string { return string(b.take(b.number())) }

// contents are what a file says.
type contents struct {
	records  sorted
	epoch    int64
	revision int64
	frames   uint64
	owed     uint64 // records of the start that have not come yet
}

// damaged is an error that says where a file is not what was written. It matches [ErrDamaged].
type damaged struct {
	at  int64
	why string
}

func (d *damaged) Error() string { return fmt.Sprintf("is damaged at byte %d: %s", d.at, d.why) }

func (d *damaged) Unwrap() error { return ErrDamaged }

var errFrame = errors.New("it has what no record can have")

// apply takes in the content of a frame.
func (c *contents) apply(frame []byte) error {
	b := &body{b: frame[1:]}
	if number := b.number(); number != c.frames+1 {
		return fmt.Errorf("frame %d follows frame %d", number, c.frames)
	}
	switch kind := frame[0]; {
	case kind == frameStart && c.frames == 0:
		c.epoch, c.revision, c.owed = int64(b.number()), int64(b.number()), b.number()
	case kind == frameRecords && c.owed > 0:
		c.applyRecords(b)
	case c.frames == 0 || c.owed > 0:
		return errFrame
	case kind == frameTerm:
		epoch := int64(b.number())
		b.bad = b.bad || epoch <= c.epoch
		c.epoch = epoch
	case kind == frameWrites:
		c.applyWrites(b)
	default:
		return errFrame
	}
	if b.bad || len(b.b) > 0 || c.epoch < 0 || c.revision < 0 {
		return errFrame
	}
	c.frames++
	return nil
}

// applyRecords takes in some of the records that a file begins with.
func (c *contents) applyRecords(b *body) {
	for len(b.b) > 0 {
		r := Named{Name: b.text(), Revision: int64(b.number())}
		r.Value = append(r.Value, b.take(b.number())...)
		if r.Value == nil {
			r.Value = []byte{}
		}
		if b.bad = b.bad || r.Revision <= 0 || r.Revision > c.revision || c.owed == 0; b.bad {
			return
		}
		c.records.put(r)
		c.owed--
	}
}

// applyWrites takes in one call of Store.
func (c *contents) applyWrites(b *body) {
	revision := int64(b.number())
	b.bad = b.bad || revision != c.revision+1
	c.revision = revision
	for n := b.number(); n > 0 && !b.bad; n-- {
		name, size := b.text(), b.number()
		if size == 0 {
			c.records.remove(name)
			continue
		}
		value := make([]byte, 0, 1)
		c.records.put(Named{Name: name, Value: append(value, b.take(size-1)...), Revision: c.revision})
	}
}

// readContents reads a file. It returns how many bytes it has, and how many more, at its end, are a write that was not finished.
// The error is a *damaged if the file is not what was written.
func readContents(r io.Reader) (c *contents, size, torn int64, err error) {
	c = &contents{}
	head, err := appendFull(r, nil, len(fileHead))
	if err != nil && !isEnd(err) {
		return nil, 0, 0, err
	}
	if string(head) != fileHead {
		why := "it does not begin as a file of limits does"
		if version := len(fileHead) - 1; len(head) > version && string(head[:version]) == fileHead[:version] {
			why = fmt.Sprintf("its format has version %d, and this program reads version %d", head[version], fileHead[version])
		}
		return nil, 0, 0, &damaged{0, why}
	}
	size = int64(len(fileHead))
	for b := []byte(nil); ; size += int64(len(b)) {
		b, err = readFrame(r, b[:0])
		if err == nil {
			err = c.apply(b[frameHead : len(b)-frameTail])
			if err != nil {
				return nil, 0, 0, &damaged{size, err.Error()}
			}
			continue
		}
		if !isEnd(err) && !errors.Is(err, errFrame) {
			return nil, 0, 0, err
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			return nil, 0, 0, err //nolint:wrapcheck // it names the file
		}
		switch b = append(b, rest...); {
		case len(b) > 0 && !isTorn(b):
			return nil, 0, 0, &damaged{size, "its checksum is not that of what it says"}
		case c.frames == 0 || c.owed > 0: // all of that was on disk before the file had its name
			return nil, 0, 0, &damaged{size, "it was cut off"}
		}
		return c, size, int64(len(b)), nil
	}
}

// isEnd reports whether there was no more, or less than was to be read.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// readFrame appends a frame to b, which is empty. The error is errFrame if it is whole and wrong.
func readFrame(r io.Reader, b []byte) ([]byte, error) {
	b, err := appendFull(r, b, frameHead)
	if err != nil {
		return b, err
	}
	size, ok := bodySize(b)
	if !ok {
		return b, errFrame
	}
	if b, err = appendFull(r, b, size+frameTail); err != nil {
		return b, err
	}
	if !isFrame(b) {
		return b, errFrame
	}
	return b, nil
}

// appendFull appends so many bytes to b, or those that there are.
func appendFull(r io.Reader, b []byte, n int) ([]byte, error) {
	at := len(b)
	b = append(b, make([]byte, n)...)
	got, err := io.ReadFull(r, b[at:])
	return b[:at+got], err //nolint:wrapcheck // it names the file, or is io.EOF
}

// bodySize is the length of the body of a frame that begins so.
func bodySize(head []byte) (size int, ok bool) {
	n := binary.BigEndian.Uint32(head)
	return int(n), binary.BigEndian.Uint32(head[4:]) == crc32.Checksum(head[:4], castagnoli) && n > 1 && n <= mostBody
}

func isFrame(b []byte) bool {
	tail := len(b) - frameTail
	return binary.BigEndian.Uint32(b[tail:]) == crc32.Checksum(b[frameHead:tail], castagnoli) && b[len(b)-1] == frameEnd
}

// isTorn reports whether the end of a file is a write that was not finished: a frame that lacks its end, in place of which there
// may be zeros.
func isTorn(rest []byte) bool {
	written := bytes.TrimRight(rest, "\x00")
	if len(written) < frameHead {
		return true
	}
	size, ok := bodySize(written)
	return ok && len(written) < frameHead+size+frameTail
}
