package redis

import (
	"bytes"
	"fmt"
	"testing"
)

// TestGuardCounts reads answers cut at every place, and tells how many begin.
func TestGuardCounts(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"+OK\r\n", 1},
		{"-ERR no\r\n:1\r\n_\r\n#t\r\n,1.5\r\n(123\r\n", 6},
		{"$3\r\na\r\n\r\n$-1\r\n*-1\r\n$0\r\n\r\n", 4},
		{"=7\r\ntxt:abc\r\n!3\r\nabc\r\n", 2},
		{"*2\r\n$1\r\na\r\n*1\r\n:1\r\n+x\r\n", 2},
		{"*0\r\n%0\r\n~0\r\n+x\r\n", 4},
		{"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n+x\r\n", 2},
		{">2\r\n+a\r\n+b\r\n+x\r\n>0\r\n+y\r\n", 2},
		{"|1\r\n+ttl\r\n:1\r\n*2\r\n|1\r\n+ttl\r\n:1\r\n+a\r\n+b\r\n+x\r\n", 2},
	} {
		for size := 1; size <= len(c.text); size++ {
			var a answers
			got := int64(0)
			for at := 0; at < len(c.text); at += size {
				n, err := a.read([]byte(c.text[at:min(at+size, len(c.text))]))
				if err != nil {
					t.Fatalf("%q by %d: %v", c.text, size, err)
				}
				got += n
			}
			if got != c.want || a.depth != 0 || a.skip != 0 || a.inLine {
				t.Fatalf("%q by %d: %d, want %d; %+v", c.text, size, got, c.want, a)
			}
		}
	}
	asked := "*1\r\n$4\r\nPING\r\n*3\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n$5\r\n*1\r\n\n\r\n*2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n*1\r\n$4\r\nPING\r\n"
	for _, command := range []string{"SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBX"} {
		text := bytes.Replace([]byte(asked), []byte("$9\r\nsubscribe"), fmt.Appendf(nil, "$%d\r\n%s", len(command), command), 1)
		for size := 1; size <= len(text); size++ {
			var sent commands
			got := int64(0)
			for at := 0; at < len(text); at += size {
				got += sent.read(text[at:min(at+size, len(text))])
			}
			if got != 4 || sent.args != 0 || sent.skip != 0 || sent.subscribed.Load() != (command != "UNSUBSCRIBX") {
				t.Fatalf("%s by %d: %d commands; %+v", command, size, got, &sent)
			}
		}
	}
}

// TestGuardRefuses says what no server may say.
func TestGuardRefuses(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 400 Bad Request\r\n", "\n", "\r\n", "+\n", "$x\r\n", "$-2\r\n", "*-7\r\n", "$\r\n", "$99999999999999\r\n", "*999999999\r\n",
		"$70000000\r\n", "%900000\r\n", "$?\r\n", "J\x00\x00\n8.0\x00", string(bytes.Repeat([]byte("*1\r\n"), 100)),
		"*1000000\r\n*1000000\r\n", "+" + string(make([]byte, 100_000)),
	} {
		var a answers
		if _, err := a.read([]byte(text)); err == nil {
			t.Errorf("%.40q is let through", text)
		}
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n%1\r\n+a\r\n>1\r\n:1\r\n"), 3)
	f.Add([]byte("|1\r\n+a\r\n+b\r\n+OK\r\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		var whole, parts answers
		want, wrong := whole.read(text)
		size = max(1, size%64)
		got := int64(0)
		for at := 0; at < len(text); at += size {
			n, err := parts.read(text[at:min(at+size, len(text))])
			got += n
			if err != nil {
				if wrong == nil {
					t.Fatal(err)
				}
				return
			}
		}
		if wrong == nil && (got != want || whole.depth != parts.depth || whole.skip != parts.skip) {
			t.Fatalf("%d and %d; %+v and %+v", want, got, whole, parts)
		}
	})
}
