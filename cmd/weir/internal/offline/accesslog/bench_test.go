package accesslog

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

// The line lengths are those of real logs: about 240 bytes of the combined
// format, 200 of nginx's JSON and 700 of Caddy's.
func benchmarkLines(prefixes ...string) func(t testing.TB) []byte {
	return func(t testing.TB) []byte {
		var chosen []byte
		for _, line := range sampleLines(t) {
			for _, prefix := range prefixes {
				if strings.HasPrefix(line, prefix) {
					if _, reason := readOne(t, line); reason == "" {
						chosen = append(append(chosen, line...), '\n')
					}
				}
			}
		}
		if len(chosen) == 0 {
			t.Fatalf("no line of the sample begins with %q", prefixes)
		}
		return chosen
	}
}

var workloads = []struct {
	name  string
	lines func(testing.TB) []byte
}{
	{"combined", benchmarkLines("192.0.2.10 ")},
	{"combined_IPv6", benchmarkLines("2001:db8:17::5 ")},
	{"virtual_host_and_names", benchmarkLines("www.", "shop.", "client.", "192.0.2.80:", "::ffff:")},
	{"escapes", benchmarkLines("203.0.113.5 ", "192.0.2.66 ")},
	{"JSON_nginx", benchmarkLines(`{"time_iso8601"`, `{"msec"`)},
	{"JSON_Caddy", benchmarkLines(`{"level":"info","ts":1719835211.5`)},
	{"JSON_Traefik", benchmarkLines(`{"ClientAddr"`)},
	{"JSON_Envoy", benchmarkLines(`{"start_time"`)},
	{"JSON_escapes", benchmarkLines(`{"@timestamp"`)},
	{"malformed", func(testing.TB) []byte {
		return []byte("x\n192.0.2.1 - - [31/Jun/2024:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n{\"a\":}\n" + goodLine + "\n")
	}},
}

// loop returns text again and again, count times.
type loop struct {
	text []byte
	rest []byte
	left int
}

func (l *loop) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		if len(l.rest) == 0 {
			if l.left == 0 {
				break
			}
			l.left--
			l.rest = l.text
		}
		m := copy(b[n:], l.rest)
		l.rest = l.rest[m:]
		n += m
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			text := w.lines(b)
			lines := bytes.Count(text, []byte("\n"))
			// A block long enough for its copying not to count per line.
			text = bytes.Repeat(text, 1+(256<<10)/len(text))
			b.SetBytes(int64(len(text) / bytes.Count(text, []byte("\n"))))
			b.ReportAllocs()
			r := NewReader(&loop{text: text, left: math.MaxInt})
			var rec Record
			b.ResetTimer()
			for r.Lines() < b.N {
				if err := r.Next(&rec); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(r.Lines())/b.Elapsed().Seconds(), "lines/s")
			if want := r.Lines() / lines; r.Records() < want {
				b.Fatalf("%d records of %d lines", r.Records(), r.Lines())
			}
		})
	}
}

// TestReaderDoesNotAllocate reads enough for every buffer to have its size, and
// then counts.
func TestReaderDoesNotAllocate(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			r := NewReader(&loop{text: w.lines(t), left: math.MaxInt})
			var rec Record
			next := func() {
				if err := r.Next(&rec); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				next()
			}
			if n := testing.AllocsPerRun(1000, next); n != 0 {
				t.Errorf("%v allocations per record, want 0", n)
			}
		})
	}
}
