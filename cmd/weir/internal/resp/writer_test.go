package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/respclient"
)

// show is a reply as text.
func show(r respclient.Reply) string {
	switch r.Kind {
	case respclient.Int, respclient.Double, respclient.Bool:
		return fmt.Sprintf("%c%s", r.Kind, r.Value)
	case respclient.Array, respclient.Map, respclient.Set, respclient.Push:
		var parts []string
		for _, e := range r.Elems {
			parts = append(parts, show(e))
		}
		return fmt.Sprintf("%c[%s]", r.Kind, strings.Join(parts, " "))
	case respclient.Null:
		return "_"
	default:
		return fmt.Sprintf("%c%q", r.Kind, r.Value)
	}
}

// replies are all that are in a stream, and how it ended.
func replies(r io.Reader) string {
	reader := respclient.NewReader(r)
	var parts []string
	for {
		reply, err := reader.Read()
		if err != nil {
			return strings.Join(append(parts, err.Error()), ", ")
		}
		parts = append(parts, show(reply))
	}
}

func TestWriterIsRead(t *testing.T) {
	write := func(w *resp.Writer) {
		w.Map(2)
		w.BulkString("a")
		w.Bool(true)
		w.Simple("b\r\nc")
		w.Bool(false)
		w.Array(3)
		w.Null()
		w.NullArray()
		w.Array(0)
		w.Error("ERR x\ny")
		w.Set(1)
		w.Double(1.5)
		w.Double(math.Inf(-1))
		w.Double(math.Inf(1))
		w.Text("two\r\nlines")
		for _, i := range []int64{0, 9, 10, 99, 100, -1, -99, math.MaxInt64, math.MinInt64} {
			w.Int(i)
		}
		w.Bulk(nil)
		w.Bulk(bytes.Repeat([]byte("x"), 12))
		w.OK()
	}
	for proto, want := range map[int]string{
		resp.RESP2: `*[$"a" :1 +"b  c" :0], *[_ _ *[]], -"ERR x y", *[$"1.5"], $"-inf", $"inf", $"two\r\nlines", :0, :9, :10, :99, :100, ` +
			`:-1, :-99, :9223372036854775807, :-9223372036854775808, $"", $"xxxxxxxxxxxx", +"OK", EOF`,
		resp.RESP3: `%[$"a" #t +"b  c" #f], *[_ _ *[]], -"ERR x y", ~[,1.5], ,-inf, ,inf, ="two\r\nlines", :0, :9, :10, :99, :100, ` +
			`:-1, :-99, :9223372036854775807, :-9223372036854775808, $"", $"xxxxxxxxxxxx", +"OK", EOF`,
	} {
		w := resp.Writer{Proto: proto}
		write(&w)
		if got := replies(bytes.NewReader(w.Bytes())); got != want {
			t.Errorf("version %d:\n got %s\nwant %s", proto, got, want)
		}
		if got := replies(iotest.OneByteReader(bytes.NewReader(w.Bytes()))); got != want {
			t.Errorf("version %d, byte by byte:\n got %s\nwant %s", proto, got, want)
		}
		w.Truncate(3)
		if w.Len() != 3 {
			t.Error(w.Len())
		}
		b := w.Bytes()
		w.Reset(b)
		write(&w)
		if got := testing.AllocsPerRun(100, func() { w.Reset(w.Bytes()); write(&w) }); got > 1 { // the test's own
			t.Errorf("version %d: %g allocations", proto, got)
		}
	}
}

// FuzzWriter: whatever a server writes, a client reads, in both versions.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("abcdefghij"), "text\r\n", int64(-5), 1.5, true)
	f.Fuzz(func(t *testing.T, script []byte, text string, i int64, d float64, three bool) {
		w := resp.Writer{Proto: resp.RESP2}
		if three {
			w.Proto = resp.RESP3
		}
		for _, c := range script {
			switch c % 11 {
			case 0:
				w.Array(2)
				w.Int(i)
				w.Bulk([]byte(text))
			case 1:
				w.Map(1)
				w.Simple(text)
				w.Null()
			case 2:
				w.Set(1)
				w.Double(d)
			case 3:
				w.Error(text)
			case 4:
				w.Bool(i > 0)
			case 5:
				w.Text(text)
			case 6:
				w.NullArray()
			case 7:
				w.BulkString(text)
			case 8:
				w.Int(int64(c))
			case 9:
				w.OK()
			case 10:
				w.Array(0)
			}
		}
		if len(text) > 16_000 {
			return
		}
		r := respclient.NewReader(bytes.NewReader(w.Bytes()))
		for range script {
			if _, err := r.Read(); err != nil {
				t.Fatalf("%q: %v", w.Bytes(), err)
			}
		}
		if _, err := r.Read(); !errors.Is(err, io.EOF) {
			t.Fatalf("%q: more than %d replies: %v", w.Bytes(), len(script), err)
		}
	})
}

// TestNumbersOfAllLengths: numbers are written by hand where they are short, which makes no difference.
func TestNumbersOfAllLengths(t *testing.T) {
	var w resp.Writer
	check := func(n int64) {
		w.Reset(w.Bytes())
		w.Int(n)
		one := ":" + strconv.FormatInt(n, 10) + "\r\n"
		if string(w.Bytes()) != one {
			t.Errorf("%d: %q, want %q", n, w.Bytes(), one)
		}
		w.Ints(n, -1, n)
		if want := one + "*3\r\n" + one + ":-1\r\n" + one; string(w.Bytes()) != want {
			t.Errorf("%d: %q, want %q", n, w.Bytes(), want)
		}
	}
	for n := range int64(10_000) { // all that four digits can be, in both halves of eight
		check(n)
		check(n*10_000 + 9999 - n)
	}
	check(math.MinInt64)
	check(math.MaxInt64)
	for power := int64(1); power <= 1_000_000_000_000_000_000/10; power *= 10 {
		for _, n := range []int64{power - 1, power, power + 1, 9*power + power/2} {
			check(n)
			check(-n)
		}
	}
}
