package accesslog

import (
	"bytes"
	"io"
)

const (
	// maxLine is the length of the longest accepted line, in bytes and without
	// its line ending.
	maxLine = 1 << 20

	// initialBuffer is the size of the read buffer before a long line grows it.
	initialBuffer = 64 << 10

	// maxEmptyReads is how many reads in a row may return neither data nor an
	// error before the reader gives up on its source.
	maxEmptyReads = 100
)

// Reader reads records from a stream of lines. Lines end in "\n" or "\r\n", the
// last one needs no ending; a byte order mark at the start of a line and lines
// of nothing but spaces and tabs are ignored. A line longer than 1 MiB is
// malformed and is skipped without being held in memory.
//
// A Reader is not safe for concurrent use.
type Reader struct {
	src io.Reader
	err error // sticky: what src returned

	buf        []byte // grows up to maxLine+2
	start, end int    // buf[start:end] is read but not yet handed out

	p parser

	line       int // lines seen
	records    int
	malformed  int
	outOfOrder int
	latest     int64
	errors     []LineError
}

// NewReader returns a Reader of the lines of src. It reads ahead, in blocks of
// 64 KiB or more. The compressed logs and the standard input that [Open] opens
// are sources like any other.
func NewReader(src io.Reader) *Reader {
	return &Reader{src: src, buf: make([]byte, initialBuffer)}
}

// Next reads the next record into rec, overwriting all of it, and skips the
// malformed lines before it. The byte slices of rec are valid until the next
// call.
//
// It returns io.EOF at the end of the stream, and otherwise only errors of the
// source, as they are. An error comes after the records of all complete lines
// before it and is returned by every further call; a last line that the error
// cut short is counted as malformed, because what is left of it could read as a
// different record. After an error rec is unspecified.
func (r *Reader) Next(rec *Record) error {
	for {
		line, err := r.readLine()
		if err != nil {
			return err
		}
		line = trimLine(line)
		if len(line) == 0 {
			continue
		}
		*rec = Record{Line: r.line}
		if len(line) > maxLine {
			r.reject(line, tooLong)
			continue
		}
		if !r.p.parse(line, rec) {
			r.reject(line, r.p.fault)
			continue
		}
		if r.records > 0 && rec.Time < r.latest {
			r.outOfOrder++
		} else {
			r.latest = rec.Time
		}
		r.records++
		return nil
	}
}

// Lines returns the number of lines read so far, empty and malformed ones
// included.
func (r *Reader) Lines() int { return r.line }

// Records returns the number of records delivered so far.
func (r *Reader) Records() int { return r.records }

// Malformed returns the number of lines so far that were not a record. Empty
// lines are not counted.
func (r *Reader) Malformed() int { return r.malformed }

// OutOfOrder returns the number of records so far whose time is earlier than
// the latest time before them. Such records are normal; see the package
// documentation.
func (r *Reader) OutOfOrder() int { return r.outOfOrder }

// readLine returns the next line without its "\n". It rejects the lines that do
// not fit into the buffer; Next rejects those that do but are too long.
func (r *Reader) readLine() ([]byte, error) {
	searched := 0 // bytes from start on that hold no line ending
	for {
		if i := bytes.IndexByte(r.buf[r.start+searched:r.end], '\n'); i >= 0 {
			line := r.buf[r.start : r.start+searched+i]
			r.start += searched + i + 1
			r.line++
			return line, nil
		}
		searched = r.end - r.start
		if r.err != nil {
			return r.lastLine()
		}
		if searched > maxLine+1 {
			r.line++
			r.reject(r.buf[r.start:r.end], tooLong)
			r.skipLine()
			searched = 0
			continue
		}
		r.fill()
	}
}

// lastLine returns what stands after the last line ending, once the source has
// no more.
func (r *Reader) lastLine() ([]byte, error) {
	line := r.buf[r.start:r.end]
	r.start = r.end
	if len(line) == 0 {
		return nil, r.err
	}
	r.line++
	if r.err != io.EOF { //nolint:errorlint // as in Source: one that is wrapped is a failure
		r.reject(line, fault{field: "line", want: "cut short by a read error"})
		return nil, r.err
	}
	return line, nil
}

// skipLine drops input up to and including the next line ending.
func (r *Reader) skipLine() {
	for r.err == nil {
		r.start, r.end = 0, 0
		r.fill()
		if i := bytes.IndexByte(r.buf[:r.end], '\n'); i >= 0 {
			r.start = i + 1
			return
		}
	}
	r.start = r.end
}

// fill reads more input behind buf[start:end], moving or growing the buffer
// when it is full. It adds at least one byte or sets err.
func (r *Reader) fill() {
	if r.start > 0 {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		grown := make([]byte, min(2*len(r.buf), maxLine+2))
		copy(grown, r.buf)
		r.buf = grown
	}
	for range maxEmptyReads {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// trimLine removes a byte order mark and the spaces, tabs and carriage returns
// at both ends.
func trimLine(b []byte) []byte {
	if len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF {
		b = b[3:]
	}
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }
