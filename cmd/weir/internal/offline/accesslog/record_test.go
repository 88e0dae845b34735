package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// entry is a Record without ties to the reader's memory.
type entry struct {
	time                int64
	client              netip.Addr
	name, host          string
	method, path, query string
	status              int
	bytes               int64
	referer, userAgent  string
}

func entryOf(rec *Record) entry {
	return entry{
		time: rec.Time, client: rec.Client, name: string(rec.ClientName), host: string(rec.Host),
		method: string(rec.Method), path: string(rec.Path), query: string(rec.Query),
		status: rec.Status, bytes: rec.Bytes, referer: string(rec.Referer), userAgent: string(rec.UserAgent),
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// noon is the time that the tables write as 01/Jul/2024:12:00:00 +0000.
var noon = time.Date(2024, time.July, 1, 12, 0, 0, 0, time.UTC).UnixNano()

// buffers are those of readers before: one of a MiB for each line would be most of what a test of many lines does.
var buffers = sync.Pool{New: func() any { return NewReader(nil).lines }}

// readAll returns what a reader finds in text, which must end without an error.
func readAll(t testing.TB, text []byte) ([]entry, *Reader) {
	t.Helper()
	var entries []entry
	lines, _ := buffers.Get().(*bufio.Reader)
	defer buffers.Put(lines)
	lines.Reset(cached{bytes.NewReader(text)})
	r := &Reader{lines: lines}
	for {
		var rec Record
		err := r.Next(&rec)
		if errors.Is(err, io.EOF) {
			return entries, r
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entryOf(&rec))
	}
}

// readOne returns the record of one line, or why it is none.
func readOne(t testing.TB, line string) (entry, string) {
	t.Helper()
	entries, r := readAll(t, []byte(line))
	if len(entries)+r.Malformed() != 1 {
		t.Fatalf("%q: %d records and %d malformed lines, want one", line, len(entries), r.Malformed())
	}
	if r.Malformed() == 1 {
		return entry{}, r.Errors()[0].Reason
	}
	return entries[0], ""
}
