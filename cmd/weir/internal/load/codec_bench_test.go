package load

import (
	"bytes"
	"testing"
	"time"
)

// BenchmarkRESP is what a request and its reply cost apart from the system calls, of 64 at once.
func BenchmarkRESP(b *testing.B) {
	for name, c := range map[string]struct {
		args     []string
		decision bool
		answer   string
	}{
		"INCR":        {[]string{"INCR", keyMark}, false, ":1\r\n"},
		"CL.THROTTLE": {[]string{"CL.THROTTLE", keyMark, "100", "1000", "1"}, true, "*5\r\n:0\r\n:101\r\n:100\r\n:-1\r\n:1\r\n"},
	} {
		b.Run(name, func(b *testing.B) {
			const pipeline = 64
			o := &options{keyPrefix: "key:", keys: 10_000, distribution: uniform}
			keys := newKeySource(o, 0)
			codec := newRESPCodec(c.args, c.decision, "")
			if _, err := codec.open(nil); err != nil {
				b.Fatal(err)
			}
			answers := bytes.Repeat([]byte(c.answer), pipeline)
			shard := newShard(false)
			samples := make([]sample, pipeline)
			var out []byte
			var replies []reply
			b.ReportAllocs()
			for i := 0; i < b.N; i += pipeline {
				out = out[:0]
				for slot := range uint32(pipeline) {
					out = codec.request(out, keys.next(), slot)
				}
				var err error
				if _, replies, err = codec.replies(answers, replies[:0]); err != nil || len(replies) != pipeline {
					b.Fatal(err)
				}
				for j, r := range replies {
					samples[j] = sample{slot{}, r.outcome, r.fault}
				}
				shard.record(samples, time.Millisecond, 0)
			}
		})
	}
}
