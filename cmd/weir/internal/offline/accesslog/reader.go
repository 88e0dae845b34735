package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// maxLine is the length of the longest accepted line, in bytes and without its
// line ending.
const maxLine = 1 << 20

// Reader reads records from a stream of lines. Lines end in "\n" or "\r\n", the
// last one needs no ending; a byte order mark at the start of a line and lines
// of nothing but spaces and tabs are ignored. A line longer than 1 MiB is
// malformed and is skipped without being held in memory.
//
// A Reader is not safe for concurrent use.
type Reader struct {
	lines *bufio.Reader // of the longest line with its ending
	err   error         // sticky: what the source returned

	p parser

	line      int // lines seen
	records   int
	malformed int
	errors    []LineError
}

// NewReader returns a Reader of the lines of src. It reads ahead, in blocks of
// 64 KiB or less. The compressed logs and the standard input that
// [Open] opens are sources like any other.
func NewReader(src io.Reader) *Reader {
	return &Reader{lines: bufio.NewReaderSize(cached{src}, maxLine+len("\r\n"))}
}

// cached is a source that is read in blocks which stay in a cache.
type cached struct{ io.Reader }

func (s cached) Read(b []byte) (int, error) { return s.Reader.Read(b[:min(len(b), blockSize)]) }

// Next reads the next record into rec, overwriting all of it, and skips the
// malformed lines before it. The byte slices of rec are valid until the next
// call.
//
// It returns io.EOF at the end of the stream, and otherwise only errors of the
// source, as they are. An error comes after the records of all complete lines
// before it and is returned by every further call; a last line that the error
// cut short is counted as malformed, because what is left of it could read as a
// different record. After context.Canceled it is not counted: nothing is wrong
// with it. After an error rec is unspecified.
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
			if r.line == 1 && (bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff"))) {
				r.p.fault = isUTF16
			}
			r.reject(line, r.p.fault)
			continue
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

// readLine returns the next line without its "\n". It rejects the lines
// that do not fit into the buffer; Next rejects those that do but are too long.
func (r *Reader) readLine() ([]byte, error) {
	for r.err == nil {
		line, err := r.lines.ReadSlice('\n')
		if err == nil {
			r.line++
			return line[:len(line)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			r.err = err
			return r.lastLine(line)
		}
		r.line++
		r.reject(line, tooLong)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.lines.ReadSlice('\n')
		}
		r.err = err
	}
	return nil, r.err
}

// lastLine returns what stands after the last line ending, once the source has
// no more.
func (r *Reader) lastLine(line []byte) ([]byte, error) {
	if len(line) == 0 || errors.Is(r.err, context.Canceled) {
		return nil, r.err
	}
	r.line++
	if r.err != io.EOF { //nolint:errorlint // as in Source: one that is wrapped is a failure
		r.reject(line, fault{field: "line", want: "cut short by a read error"})
		return nil, r.err
	}
	return line, nil
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
