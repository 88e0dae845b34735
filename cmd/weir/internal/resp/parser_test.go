package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
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

// parse gives a stream to a parser in chunks, in a new buffer each time.
func parse(t testing.TB, stream []byte, chunk int, l resp.Limits, stranger bool) parsed {
	t.Helper()
	p := resp.NewParser(l)
	p.Stranger = stranger
	var found parsed
	var buf []byte
	for {
		for {
			// With no room behind, whoever reads or writes beyond the end is found out.
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
	p := resp.NewParser(resp.Limits{})
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
		stream := resp.AppendCommand(nil, a, b, c)
		stream = resp.AppendCommand(stream, string(c))
		limits := resp.Limits{MaxBulk: 1 << 20, MaxCommand: 4 << 20}
		want := parsed{commands: [][]string{{string(a), string(b), string(c)}, {string(c)}}}.String()
		if got := parse(t, stream, len(stream), limits, false).String(); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	one := resp.AppendCommand(nil, "CL.THROTTLE", "user:12345678", "15", "30", "60")
	stream := bytes.Repeat(one, 64)
	p := resp.NewParser(resp.Limits{})
	b.ReportAllocs()
	for i := 0; i < b.N; i += 64 {
		for buf := stream; len(buf) > 0; {
			_, n, _ := p.Next(buf)
			buf = buf[n:]
		}
	}
}
