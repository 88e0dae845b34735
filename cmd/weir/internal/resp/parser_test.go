package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/respclient"
)

// parsed is what a parser finds in a stream.
type parsed struct {
	commands [][]string
	err      error
	rest     int // bytes of a command that is not complete
}

func (p parsed) String() string {
	return fmt.Sprintf("%q, error %v, %d bytes left", p.commands, p.err, p.rest)
}

func newParser(l resp.Limits) *resp.Parser {
	p := new(resp.Parser)
	p.Init(l)
	return p
}

// parse gives a stream to a parser in chunks, in a new buffer each time.
func parse(t testing.TB, stream []byte, chunk int, l resp.Limits, stranger bool) parsed {
	t.Helper()
	p := newParser(l)
	p.Stranger = stranger
	var found parsed
	var buf []byte
	for {
		for {
			// With no room behind, a read or a write beyond the end fails.
			buf = slices.Clip(bytes.Clone(buf))
			args, n, err := p.Next(buf)
			if err != nil {
				found.err = err
				return found
			}
			if n > len(buf) {
				t.Fatalf("%d bytes of %d", n, len(buf))
			}
			if n == 0 {
				break
			}
			var words []string
			for _, a := range args {
				if cap(a) != len(a) {
					t.Fatalf("argument %q has %d bytes of what follows it", a, cap(a)-len(a))
				}
				words = append(words, string(a))
			}
			found.commands = append(found.commands, words)
			for i := 1; i < len(args); i++ {
				checkAgain(t, p, buf[n:], p.Frame(buf[:n], i), i, l, stranger)
			}
			buf = buf[n:]
		}
		if len(stream) == 0 {
			found.rest = len(buf)
			return found
		}
		n := min(chunk, len(stream))
		buf = append(buf, stream[:n]...)
		stream = stream[n:]
	}
}

// checkAgain compares what Again finds with what Next does.
func checkAgain(t testing.TB, p *resp.Parser, buf []byte, f resp.Frame, i int, l resp.Limits, stranger bool) {
	t.Helper()
	buf = slices.Clip(bytes.Clone(buf))
	argument, n := p.Again(buf, f)
	if n == 0 {
		return
	}
	next := newParser(l)
	next.Stranger = stranger
	args, size, err := next.Next(buf)
	if err != nil || size != n || !bytes.Equal(args[i], argument) || cap(argument) != len(argument) {
		t.Fatalf("%q: again %q in %d bytes, want %q in %d, error %v", buf, argument, n, args, size, err)
	}
	// Without the argument, it is the command that the frame is of.
	if next.Frame(buf[:n], i).String() != f.String() {
		t.Fatalf("%q: %s, want %s", buf, next.Frame(buf[:n], i), f)
	}
}

func TestParserFindsACommandAgain(t *testing.T) {
	command := func(key string) string { return string(respclient.AppendCommand(nil, "take", key, "15", "30")) }
	long := strings.Repeat("x", 41)
	p := newParser(resp.Limits{MaxBulk: 40, MaxCommand: 60})
	first := []byte(command("a"))
	if _, n, err := p.Next(first); err != nil || n != len(first) {
		t.Fatal(n, err)
	}
	f := p.Frame(first, 1)
	size := len(first) - len("$1\r\na")
	for room := range size {
		if short := f.In(make([]byte, room)); short.String() != (resp.Frame{}).String() {
			t.Errorf("%d bytes of memory have %s", room, short)
		}
	}
	within := bytes.Clone(first)
	f = p.Frame(within, 1).In(make([]byte, size))
	clear(within)
	for _, key := range []string{"", "a", "b", "0123456789", "\r\n$1\r\n", long[:23]} {
		stream := command(key)
		for size := range len(stream) {
			if _, n := p.Again([]byte(stream[:size]), f); n != 0 {
				t.Errorf("%q: %d bytes", stream[:size], n)
			}
		}
		for _, rest := range []string{"", "*", stream} {
			if got, n := p.Again([]byte(stream+rest), f); string(got) != key || n != len(stream) {
				t.Errorf("%q: %q in %d bytes", stream+rest, got, n)
			}
		}
	}
	for _, other := range []string{
		command(long[:24]), command(long), string(respclient.AppendCommand(nil, "Take", "a", "15", "30")), "take a 15 30\r\n",
		string(respclient.AppendCommand(nil, "take", "a", "15", "31")), string(respclient.AppendCommand(nil, "take", "a", "15")),
		strings.Replace(command("a"), "$1\r\na", "$01\r\na", 1), strings.Replace(command("a"), "$1\r\na", "$:\r\na23456789", 1),
		strings.Replace(command("a"), "$1\r\na", "$2\r\na", 1), strings.Replace(command("a"), "$1\r\na", "$1\n\ra", 1),
		strings.Replace(command("a"), "$1\r\na", "+1\r\na", 1), strings.Replace(command("a"), "$1\r\na", "$1/\r\na", 1),
	} {
		if got, n := p.Again([]byte(other), f); n != 0 {
			t.Errorf("%q: %q in %d bytes", other, got, n)
		}
	}
	if _, n := p.Again(first, resp.Frame{}); n != 0 {
		t.Errorf("%d bytes of no frame", n)
	}
	line := []byte("take a 15 30\r\n")
	if _, n, err := p.Next(line); err != nil || n != len(line) {
		t.Fatal(n, err)
	}
	if f = p.Frame(line, 1); f.String() != (resp.Frame{}).String() {
		t.Errorf("the frame of a line is %s", f)
	}
	if _, n, err := p.Next(first[:6]); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	if _, n := p.Again(first, f); n != 0 {
		t.Errorf("%d bytes within a command", n)
	}
}

func TestParserFindsCommands(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		stream string
		want   string
	}{
		{"", `[], error <nil>, 0 bytes left`},
		{"*1\r\n$4\r\nPING\r\n", `[["PING"]], error <nil>, 0 bytes left`},
		{"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$1\r\nX\r\n", `[["ECHO" ""] ["X"]], error <nil>, 0 bytes left`},
		{"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb*\r\n", `[["ECHO" "a\r\nb*"]], error <nil>, 0 bytes left`},
		{"*0\r\n*-1\r\n*-9999999999999\r\nPING\r\n", `[[] [] [] ["PING"]], error <nil>, 0 bytes left`},
		{"*1\r\n$4\r\nPIN", `[], error <nil>, 11 bytes left`},
		{"*11\r\n$1\r\na\r\n", `[], error <nil>, 12 bytes left`},
		{"*1\r\n$12\r\n123456789012\r\n", `[["123456789012"]], error <nil>, 0 bytes left`},

		{"PING\r\n", `[["PING"]], error <nil>, 0 bytes left`},
		{"  set  a\tb \n\r\n\n", `[["set" "a" "b"] [] []], error <nil>, 0 bytes left`},
		{`echo "a b\x41\n\r\t\b\a\"\\\q" 'it\'s \n'` + "\n", `[["echo" "a bA\n\r\t\b\a\"\\q" "it's \\n"]], error <nil>, 0 bytes left`},
		{"a\"b c\" '' \"\"\n", `[["ab c" "" ""]], error <nil>, 0 bytes left`},
		{`echo "\xZZ\x4"` + "\n", `[["echo" "xZZx4"]], error <nil>, 0 bytes left`},
		{`echo "a`, `[], error <nil>, 7 bytes left`},
		{"echo \"a\n", `[], error ERR Protocol error: unbalanced quotes in request, 0 bytes left`},
		{"echo \"a\"b\n", `[], error ERR Protocol error: unbalanced quotes in request, 0 bytes left`},
		{"echo 'a\n", `[], error ERR Protocol error: unbalanced quotes in request, 0 bytes left`},
		{"echo 'a\\'\n", `[], error ERR Protocol error: unbalanced quotes in request, 0 bytes left`},

		{"*a\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*-\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*+1\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*01\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*-0\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*1\n$4", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*1\r$4", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*1025\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*18446744073709551617\r\n", `[], error ERR Protocol error: invalid multibulk length, 0 bytes left`},
		{"*" + strings.Repeat("1", 21), `[], error ERR Protocol error: too big mbulk count string, 0 bytes left`},
		{"PING\r\n*1\r\nPING\r\n", `[["PING"]], error ERR Protocol error: expected '$', got 'P', 0 bytes left`},
		{"*1\r\n\x00", `[], error ERR Protocol error: expected '$', got '?', 0 bytes left`},
		{"\x16\x03\x01", `[], error ERR Protocol error: TLS is not spoken here, 0 bytes left`},
		{"*1\r\n$-1\r\n", `[], error ERR Protocol error: invalid bulk length, 0 bytes left`},
		{"*1\r\n$x\r\n", `[], error ERR Protocol error: invalid bulk length, 0 bytes left`},
		{"*1\r\n$65537\r\n", `[], error ERR Protocol error: invalid bulk length, 0 bytes left`},
		{"*1\r\n$99999999999999999999\r\n", `[], error ERR Protocol error: invalid bulk length, 0 bytes left`},
		{"*1\r\n$" + strings.Repeat("9", 21), `[], error ERR Protocol error: too big bulk count string, 0 bytes left`},
		{"*1\r\n$4\r\nPINGxx", `[], error ERR Protocol error: expected the end of a line after a bulk string, 0 bytes left`},
		{"*2\r\n$100\r\n" + long + "\r\n$1\r\nx\r\n", `[["` + long + `" "x"]], error <nil>, 0 bytes left`},
	} {
		for _, chunk := range []int{1, 2, 3, 7, 1 << 20} {
			if got := parse(t, []byte(c.stream), chunk, resp.Limits{}, false).String(); got != c.want {
				t.Errorf("%q in chunks of %d:\n got %s\nwant %s", c.stream, chunk, got, c.want)
			}
		}
	}
}

func TestParserKeepsLimits(t *testing.T) {
	few := resp.Limits{MaxBulk: 10, MaxArgs: 3, MaxInline: 20, MaxCommand: 50}
	for _, c := range []struct {
		stream   string
		stranger bool
		limits   resp.Limits
		want     string
	}{
		{"*3\r\n$1\r\na\r\n$1\r\nb\r\n$10\r\n0123456789\r\n", false, few, ""},
		{"*4\r\n", false, few, "invalid multibulk length"},
		{"*1\r\n$11\r\n", false, few, "invalid bulk length"},
		{"*3\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$9\r\n", false, few, "too big command"},
		{"123 4567890 1234567\n", false, few, ""},
		{"123 4567890 12345678\n", false, few, "too big inline request"},
		{strings.Repeat(" ", 20), false, few, "too big inline request"},
		{"1234567890a\n", false, few, "too long word in inline request"},
		{"a b c d\n", false, few, "too many words in inline request"},
		{"*10\r\n", true, resp.Limits{}, ""},
		{"*11\r\n", true, resp.Limits{}, "unauthenticated multibulk length"},
		{"*1\r\n$16384\r\n", true, resp.Limits{}, ""},
		{"*1\r\n$16385\r\n", true, resp.Limits{}, "unauthenticated bulk length"},
		{"1 2 3 4 5 6 7 8 9 10 11\n", true, resp.Limits{}, "too many words in inline request"},
		{strings.Repeat("x", 64<<10), false, resp.Limits{}, "too big inline request"},
	} {
		for _, chunk := range []int{1 << 20, 1} {
			if chunk < len(c.stream)>>10 {
				continue // would take long
			}
			got := parse(t, []byte(c.stream), chunk, c.limits, c.stranger)
			want := error(nil)
			if c.want != "" {
				want = resp.ProtocolError(c.want)
			}
			if !errors.Is(got.err, want) {
				t.Errorf("%.80q in chunks of %d: %s; want error %v", c.stream, chunk, got, want)
			}
		}
	}
}

func TestParserAllocatesNothing(t *testing.T) {
	stream := []byte("*6\r\n$11\r\nCL.THROTTLE\r\n$4\r\nuser\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\nPING\r\n")
	p := newParser(resp.Limits{})
	if got := testing.AllocsPerRun(100, func() {
		for buf := stream; len(buf) > 0; {
			_, n, err := p.Next(buf)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			buf = buf[n:]
		}
	}); got != 0 {
		t.Errorf("%g allocations", got)
	}
}

func FuzzParser(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n", "*1\r\n$4\r\nPING\r\nPING\r\n*0\r\n\r\n*-1\r\n", `a "b\x41" 'c\''` + "\r\n",
		"*2\r\n$1\r\na\r\n$2\r\nbc\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$1\r\na\r\n$11\r\n01234567890\r\n",
		"*3\r\n$1\r\na\r\n$2\r\nbc\r\n$0\r\n\r\n*1\r\n$", "*1\r\n$70000\r\n", "\"\n", "*1\r\n$30\r\n012345678901234567890123456789\r\n",
	} {
		f.Add([]byte(s), uint8(3), false)
	}
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8, stranger bool) {
		limits := resp.Limits{MaxBulk: 40, MaxArgs: 12, MaxInline: 60, MaxCommand: 150}
		whole := parse(t, stream, len(stream)+1, limits, stranger).String()
		for _, size := range []int{1, int(chunk) + 1} {
			if got := parse(t, stream, size, limits, stranger).String(); got != whole {
				t.Fatalf("%q in chunks of %d:\n  got %s\nwhole %s", stream, size, got, whole)
			}
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte("CL.THROTTLE"), []byte("a\r\nb"), []byte(""))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		stream := respclient.AppendCommand(nil, string(a), string(b), string(c))
		stream = respclient.AppendCommand(stream, string(c))
		limits := resp.Limits{MaxBulk: 1 << 20, MaxCommand: 4 << 20}
		want := parsed{commands: [][]string{{string(a), string(b), string(c)}, {string(c)}}}.String()
		if got := parse(t, stream, len(stream), limits, false).String(); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	one := respclient.AppendCommand(nil, "CL.THROTTLE", "user:12345678", "15", "30", "60")
	stream := bytes.Repeat(one, 64)
	p := newParser(resp.Limits{})
	b.ReportAllocs()
	for i := 0; i < b.N; i += 64 {
		for buf := stream; len(buf) > 0; {
			_, n, _ := p.Next(buf)
			buf = buf[n:]
		}
	}
}
