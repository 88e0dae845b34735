package accesslog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const goodLine = `192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`

func TestReaderLines(t *testing.T) {
	for _, test := range []struct {
		name, text                string
		lines, records, malformed int
	}{
		{"nothing", "", 0, 0, 0},
		{"one line", goodLine, 1, 1, 0},
		{"one line with ending", goodLine + "\n", 1, 1, 0},
		{"CRLF", goodLine + "\r\n" + goodLine + "\r\n", 2, 2, 0},
		{"empty lines", "\n\n \t\r\n" + goodLine + "\n\r\n\n" + goodLine + "\n\n", 8, 2, 0},
		{"blanks at the end", goodLine + "\n  \t", 2, 1, 0},
		{"byte order mark", "\ufeff" + goodLine + "\n\ufeff" + goodLine, 2, 2, 0},
		{"byte order mark alone", "\ufeff", 1, 0, 0},
		{"byte order mark and JSON", "\ufeff{\"ts\":1719835200,\"path\":\"/\"}", 1, 1, 0},
		{"UTF-16", "1\x009\x002\x00.\x00\n\x00", 2, 0, 2},
		{"binary", "\x00\xff\n\x7fELF\n\n" + goodLine, 4, 1, 2},
		{"carriage return inside", goodLine + "\r" + goodLine + "\n", 1, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, r := readAll(t, []byte(test.text))
			if r.Lines() != test.lines || r.Records() != test.records || r.Malformed() != test.malformed {
				t.Errorf("%d lines, %d records, %d malformed; want %d, %d, %d",
					r.Lines(), r.Records(), r.Malformed(), test.lines, test.records, test.malformed)
			}
		})
	}
}

func TestReaderLongLines(t *testing.T) {
	// A line of the wanted length whose path is what makes it long.
	long := func(n int) string {
		head, tail, _ := strings.Cut(goodLine, "/ HTTP")
		return head + "/" + strings.Repeat("x", n-len(goodLine)) + " HTTP" + tail
	}
	for _, ending := range []string{"\n", "\r\n"} {
		for n, ok := range map[int]bool{
			blockSize - 1: true, blockSize: true, blockSize + 1: true, 5 * blockSize: true,
			maxLine - 1: true, maxLine: true,
			maxLine + 1: false, maxLine + 2: false, maxLine + 3: false, 3 * maxLine: false,
		} {
			text := goodLine + ending + long(n) + ending + goodLine + ending
			for _, text := range []string{text, strings.TrimSuffix(text, ending+goodLine+ending), strings.TrimSuffix(text, goodLine+ending)} {
				entries, r := readAll(t, []byte(text))
				lines := strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
				if r.Lines() != lines {
					t.Errorf("%d bytes, %q: %d lines, want %d", n, ending, r.Lines(), lines)
				}
				if ok && (len(entries) != lines || len(entries[1].path) != n-len(goodLine)+1) {
					t.Errorf("%d bytes, %q: %d records of %d lines, %v", n, ending, len(entries), lines, r.Errors())
				}
				if !ok && (len(entries) != lines-1 || r.Malformed() != 1) {
					t.Errorf("%d bytes, %q: %d records of %d lines and %d malformed", n, ending, len(entries), lines, r.Malformed())
				}
				if !ok {
					e := r.Errors()[0]
					if e.Line != 2 || e.Reason != "line: longer than 1 MiB" || len(e.Text) != maxErrorText || !strings.HasSuffix(e.Text, "xxx...") {
						t.Errorf("%d bytes, %q: %+v", n, ending, e)
					}
				}
				if r.lines.Size() > maxLine+2 {
					t.Errorf("%d bytes, %q: buffer of %d bytes", n, ending, r.lines.Size())
				}
			}
		}
	}
}

// endless is a line without end, as a hostile or broken source writes it.
type endless struct{ left int }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	for i := range b[:n] {
		b[i] = 'x'
	}
	e.left -= n
	return n, nil
}

func TestReaderEndlessLine(t *testing.T) {
	r := NewReader(io.MultiReader(&endless{left: 64 << 20}, strings.NewReader("\n"+goodLine)))
	var rec Record
	if err := r.Next(&rec); err != nil || rec.Line != 2 {
		t.Errorf("line %d, error %v; want line 2", rec.Line, err)
	}
	if r.Malformed() != 1 || r.lines.Size() > maxLine+2 {
		t.Errorf("%d malformed, buffer of %d bytes", r.Malformed(), r.lines.Size())
	}
}

// TestReaderUTF16: a log in UTF-16, of either order of bytes, has no records, and the first error says what to do.
func TestReaderUTF16(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var log []byte
		for _, c := range "\ufeff" + goodLine + "\n" + goodLine + "\n" {
			log = order.AppendUint16(log, uint16(c))
		}
		_, r := readAll(t, log)
		list := r.Errors()
		if r.Records() != 0 || len(list) < 2 || list[0].Reason != isUTF16.String() || list[1].Reason == isUTF16.String() {
			t.Errorf("%v: %d records, errors %v", order, r.Records(), list)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "bad %d\n\n%s\n", i, goodLine)
	}
	_, r := readAll(t, []byte(text.String()))
	if r.Malformed() != 20 || r.Records() != 20 {
		t.Errorf("%d malformed, %d records, want 20 and 20", r.Malformed(), r.Records())
	}
	list := r.Errors()
	if len(list) != keptErrors {
		t.Fatalf("%d errors kept, want %d", len(list), keptErrors)
	}
	for i, e := range list {
		if e.Line != 3*i+1 || e.Text != fmt.Sprintf("bad %d", i) {
			t.Errorf("error %d is %+v", i, e)
		}
	}
	want := `weir: access log line 1: line: not the common or combined log format: no [time] "request": bad 0`
	if got := list[0].Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	list[0].Text = "changed"
	if r.Errors()[0].Text == "changed" {
		t.Error("Errors returns its own list")
	}
	if _, r := readAll(t, []byte(goodLine)); r.Errors() != nil {
		t.Errorf("errors %v, want none", r.Errors())
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"plain äß€ text":                        "plain äß€ text",
		"a\x00b\tc\nd\x1b[31m\x7f":              `a\x00b\tc\nd\x1b[31m\x7f`,
		"\u202e\u200b\u0085":                    `\u202e\u200b\u0085`,
		"\xff\xc3(\ufffd":                       `\xff\xc3(�`,
		`quotes " and \ stay`:                   `quotes " and \ stay`,
		strings.Repeat("x", 120):                strings.Repeat("x", 120),
		strings.Repeat("x", 121):                strings.Repeat("x", 117) + "...",
		strings.Repeat("ä", 60):                 strings.Repeat("ä", 60),
		strings.Repeat("ä", 61):                 strings.Repeat("ä", 58) + "...",
		strings.Repeat("\x01", 30):              strings.Repeat(`\x01`, 30),
		strings.Repeat("\x01", 31):              strings.Repeat(`\x01`, 29) + "...",
		strings.Repeat("x", 118) + "\U000e0001": strings.Repeat("x", 117) + "...",
	} {
		if got := Printable([]byte(text), maxErrorText); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestReaderSourceErrors(t *testing.T) {
	failure := errors.New("disk on fire")
	cut := goodLine + "\n" + goodLine + "\n" + goodLine[:len(goodLine)-1]
	for name, src := range map[string]io.Reader{
		"after data": io.MultiReader(strings.NewReader(cut), iotest.ErrReader(failure)),
		"with data":  iotest.DataErrReader(io.MultiReader(strings.NewReader(cut), iotest.ErrReader(failure))),
		"byte wise":  iotest.OneByteReader(io.MultiReader(strings.NewReader(cut), iotest.ErrReader(failure))),
	} {
		r := NewReader(src)
		var rec Record
		for range 2 {
			if err := r.Next(&rec); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		// The cut line would be a valid record, of another size.
		for range 3 {
			if err := r.Next(&rec); err != failure { //nolint:errorlint // as it is
				t.Errorf("%s: error %v, want %v", name, err, failure)
			}
		}
		if r.Malformed() != 1 || r.Errors()[0].Reason != "line: cut short by a read error" {
			t.Errorf("%s: %d malformed, %v", name, r.Malformed(), r.Errors())
		}
	}

	r := NewReader(iotest.ErrReader(failure))
	if err := r.Next(&Record{}); !errors.Is(err, failure) || r.Malformed() != 0 || r.Lines() != 0 {
		t.Errorf("error %v, %d malformed, %d lines", err, r.Malformed(), r.Lines())
	}
	r = NewReader(silent{})
	if err := r.Next(&Record{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("error %v, want %v", err, io.ErrNoProgress)
	}
	r = NewReader(io.MultiReader(&endless{left: 2 * maxLine}, iotest.ErrReader(failure)))
	if err := r.Next(&Record{}); !errors.Is(err, failure) || r.Malformed() != 1 || r.Lines() != 1 {
		t.Errorf("error %v, %d malformed, %d lines", err, r.Malformed(), r.Lines())
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestReaderOutOfOrder(t *testing.T) {
	var text strings.Builder
	for _, second := range []int{5, 3, 4, 5, 6, 1, 6, 7} {
		text.WriteString(strings.Replace(goodLine, "12:00:00", fmt.Sprintf("12:00:%02d", second), 1) + "\n")
	}
	entries, _ := readAll(t, []byte(text.String()))
	if len(entries) != 8 || entries[5].time != noon+1e9 {
		t.Errorf("the order of the lines was not kept: %+v", entries)
	}
}

// TestReaderOverwrites checks that nothing of a record stays in the next one.
func TestReaderOverwrites(t *testing.T) {
	for _, line := range sampleLines(t) {
		want, reason := readOne(t, line)
		r := NewReader(io.MultiReader(bytes.NewReader(sampleText(t)), strings.NewReader(line+"\n")))
		var rec Record
		var got entry
		for {
			err := r.Next(&rec)
			if errors.Is(err, io.EOF) {
				break
			}
			if got = entryOf(&rec); rec.Line != r.Lines() {
				t.Errorf("record of line %d says %d", r.Lines(), rec.Line)
			}
		}
		if reason == "" && got != want {
			t.Errorf("%s\n got %+v\nwant %+v", line, got, want)
		}
	}
}

// FuzzReader checks that what is read does not depend on how the source cuts
// the stream, and that every line is accounted for.
func FuzzReader(f *testing.F) {
	f.Add(sampleText(f), 7)
	f.Add([]byte("\ufeff"+goodLine+"\r\n\r\n \n\x00\n{}\n"+goodLine), 1)
	f.Add(bytes.Repeat([]byte(goodLine+"\nbad\n"), 20), 100)
	f.Fuzz(func(t *testing.T, text []byte, block int) {
		whole, want := readAll(t, text)
		r := NewReader(iotest.DataErrReader(&blocks{text, max(1, block)}))
		var rec Record
		n := 0
		for ; r.Next(&rec) == nil; n++ {
			if n < len(whole) && entryOf(&rec) != whole[n] {
				t.Errorf("record %d: got %+v, want %+v", n, entryOf(&rec), whole[n])
			}
		}
		if n != len(whole) || r.Lines() != want.Lines() || r.Malformed() != want.Malformed() {
			t.Errorf("%d records, %d lines, %d malformed; in one block %d, %d, %d", n, r.Lines(), r.Malformed(), len(whole), want.Lines(), want.Malformed())
		}
		lines, empty := 0, 0
		for line := range bytes.Lines(text) {
			lines++
			line = bytes.TrimSuffix(line, []byte("\n"))
			if len(bytes.Trim(bytes.TrimPrefix(line, []byte("\ufeff")), " \t\r")) == 0 {
				empty++
			}
		}
		if r.Lines() != lines || n+r.Malformed()+empty != lines {
			t.Errorf("%d lines, %d records, %d malformed; want %d lines, %d of them empty", r.Lines(), n, r.Malformed(), lines, empty)
		}
		for _, e := range r.Errors() {
			if len(e.Text) > maxErrorText || strings.ContainsFunc(e.Text+e.Reason, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				t.Errorf("line error not printable: %+v", e)
			}
		}
	})
}

// blocks returns text in blocks of a fixed size.
type blocks struct {
	text []byte
	size int
}

func (b *blocks) Read(p []byte) (int, error) {
	if len(b.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), b.size)], b.text)
	b.text = b.text[n:]
	return n, nil
}
