//go:build !race

package accesslog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestTruncatedGzip cuts a compressed log everywhere: the records of the lines
// that came through are delivered before the error.
func TestTruncatedGzip(t *testing.T) {
	text := sampleText(t)
	content := packed(t, text)
	all, whole := readAll(t, text)
	most := 0
	for n := 2; n < len(content); n++ {
		s := open(t, "-", bytes.NewReader(content[:n]))
		r := NewReader(s)
		var rec Record
		var err error
		records := 0
		for err = r.Next(&rec); err == nil; err = r.Next(&rec) {
			if records == len(all) || entryOf(&rec) != all[records] {
				t.Fatalf("%d bytes: record %d is %+v", n, records, entryOf(&rec))
			}
			records++
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "weir: access log standard input: the gzip stream is truncated: it ends after ") {
			t.Fatalf("%d bytes: error %v", n, err)
		}
		if records < most {
			t.Errorf("%d bytes: %d records, fewer than of a shorter stream", n, records)
		}
		most = records
	}
	// Without the checksum at its end the stream has all the records.
	if most != len(all) || whole.Records() != len(all) {
		t.Errorf("%d records at most, want %d", most, len(all))
	}
}
