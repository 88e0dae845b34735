package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pieces gives a codec what it reads in pieces of n bytes, as a connection does. It returns all replies.
func pieces(c codec, whole []byte, n int) ([]reply, error) {
	var have []byte
	var all []reply
	for piece := range slices.Chunk(whole, n) {
		have = append(have, piece...)
		used, replies, err := c.replies(have, nil)
		all = append(all, replies...)
		if err != nil {
			return all, err
		}
		have = slices.Clone(have[used:])
	}
	if len(have) > 0 {
		return all, fmt.Errorf("%d bytes are left", len(have))
	}
	return all, nil
}

func shown(replies []reply) string {
	var b strings.Builder
	for _, r := range replies {
		fmt.Fprintf(&b, "%d:%d", r.slot, r.outcome)
		if r.fault != nil {
			b.WriteString("(" + r.fault.kind + ")")
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

// discarded is a connection on which nothing comes back.
func discarded(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, theirs)
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-done
	})
	return ours
}

// frames are those of a server that answers the streams 1, 3 and so on, the last one first.
func frames(t *testing.T, answers ...string) []byte {
	t.Helper()
	var b, block bytes.Buffer
	f := http2.NewFramer(&b, nil)
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	header := func(fields ...string) []byte {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			if err := e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Clone(block.Bytes())
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 10}))
	must(f.WritePing(false, [8]byte{1}))
	for i, answer := range slices.Backward(answers) {
		stream := uint32(2*i + 1)
		switch answer {
		case "reset":
			must(f.WriteRSTStream(stream, http2.ErrCodeRefusedStream))
		case "trailers only":
			must(f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: header(":status", "200", "grpc-status", "7", "grpc-message", "no%20way"),
				EndHeaders: true, EndStream: true,
			}))
		case "continued":
			b := header(":status", "404")
			must(f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b[:1], EndStream: true}))
			must(f.WriteContinuation(stream, true, b[1:]))
		default:
			must(f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: header(":status", "200", "content-type", "application/grpc"), EndHeaders: true,
			}))
			message := append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
			must(f.WriteData(stream, false, message[:3]))
			must(f.WriteData(stream, false, message[3:]))
			must(f.WriteWindowUpdate(0, 1000))
			must(f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: header("grpc-status", "0", "grpc-message", ""), EndHeaders: true, EndStream: true,
			}))
		}
	}
	return b.Bytes()
}

// TestRepliesInPieces: however the bytes arrive, the replies are the same.
func TestRepliesInPieces(t *testing.T) {
	asks := &options{
		address: "x:1", policy: "p", cost: 1, domain: "d", descriptors: descriptors{list: [][]rlsEntry{{{"k", keyMark}}}},
	}
	for name, c := range map[string]struct {
		make  func() codec
		bytes []byte
		asked int
		want  string
	}{
		"decisions": {
			func() codec { return newRESPCodec([]string{"X", keyMark}, true, "") },
			[]byte("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n-ERR so it is\r\n*1\r\n:1\r\n*2\r\n:1\r\n$3\r\nx\r\n\r\n*0\r\n:1\r\n*1\r\n:10\r\n*2\r\n:0\r\n:7\r\n"), 8,
			"0:1 1:3(ERR) 2:2 3:2 4:3(not a decision) 5:3(not a decision) 6:3(not a decision) 7:1",
		},
		"anything": {
			func() codec { return newRESPCodec([]string{"X"}, false, "") },
			[]byte("+OK\r\n:-12\r\n$-1\r\n$4\r\n\r\n:1\r\n*2\r\n*1\r\n:1\r\n+x\r\n%1\r\n+k\r\n_\r\n>2\r\n+push\r\n:1\r\n!5\r\nOOM x\r\n,1.5\r\n*-1\r\n"), 9,
			"0:0 1:0 2:0 3:0 4:0 5:0 6:3(OOM) 7:0 8:0",
		},
		"HTTP": {
			func() codec { return newHTTPCodec(asks) },
			[]byte("HTTP/1.1 200 OK\r\ncontent-length: 3\r\nX-Content-Length: 9\r\n\r\n\r\n\r" +
				"HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n00\r\nTrailer: x\r\n\r\n" +
				"HTTP/1.1 503 \r\nContent-Length:0\r\n\r\n" +
				"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"), 4,
			"0:1 1:2 2:3(status 503) 3:1",
		},
		"gRPC": {
			func() codec { return newRLSCodec(asks) },
			frames(t, "\x08\x01", "\x08\x02", "trailers only", "reset", "continued", "\x12\x00\x08\x01", "\x08\x07", "\xff\xff", ""), 9,
			"8:3(not a decision) 7:3(not a decision) 6:3(not a decision) 5:1 4:3(status 404) 3:3(stream REFUSED_STREAM) " +
				"2:3(PermissionDenied) 1:2 0:1",
		},
	} {
		for n := 1; n <= len(c.bytes); n++ {
			made := c.make()
			if _, err := made.open(discarded(t)); err != nil {
				t.Fatal(err)
			}
			for slot := range uint32(c.asked) {
				made.request(nil, []byte("key"), slot)
			}
			replies, err := pieces(made, c.bytes, n)
			if got := shown(replies); err != nil || got != c.want {
				t.Errorf("%s in pieces of %d: %v, %s, want %s", name, n, err, got, c.want)
				break
			}
			if name == "gRPC" {
				if got := made.control(); len(got) != 2*frameHead+8 || made.room() != 10 {
					t.Errorf("it is answered with %q, and there is room for %d", got, made.room())
				}
			}
			// Nothing more was asked for.
			if name != "gRPC" {
				_, _, err = made.replies(c.bytes, nil)
				if protocol := (*protocolError)(nil); !errors.As(err, &protocol) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// FuzzReplies: whatever a server sends, a codec neither panics nor goes round in circles, and returns no request twice.
func FuzzReplies(f *testing.F) {
	f.Add(uint8(0), []byte("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n$3\r\nabc\r\n"))
	f.Add(uint8(1), []byte("HTTP/1.1 429 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"))
	f.Add(uint8(2), []byte("\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x09\x00\x00\x02\x01\x05\x00\x00\x00\x01\x88\x00"))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		o := &options{
			address: "x:1", policy: "p", cost: 1, domain: "d", descriptors: descriptors{list: [][]rlsEntry{{{"k", keyMark}}}},
		}
		var c codec
		switch kind % 3 {
		case 0:
			c = newRESPCodec([]string{"X", keyMark}, true, "")
		case 1:
			c = newHTTPCodec(o)
		default:
			c = newRLSCodec(o)
		}
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		defer ours.Close()
		if _, err := c.open(ours); err != nil {
			t.Fatal(err)
		}
		const asked = 4
		for slot := range uint32(asked) {
			c.request(nil, []byte("key"), slot)
		}
		replies, _ := pieces(c, b, max(1, len(b)/2))
		seen := map[uint32]bool{}
		for _, r := range replies {
			if seen[r.slot] || r.slot >= asked || (r.fault == nil) != (r.outcome != failed) {
				t.Fatalf("%s", shown(replies))
			}
			seen[r.slot] = true
		}
		c.control()
		c.room()
	})
}

// TestNoAllocationForARequest: once its buffers have grown, a command and its reply cost none.
func TestNoAllocationForARequest(t *testing.T) {
	keys := newKeySource(&options{keyPrefix: "key:", keys: 10_000, distribution: uniform}, 0)
	codec := newRESPCodec([]string{"CL.THROTTLE", keyMark, "1", "2", "3"}, true, "")
	if _, err := codec.open(nil); err != nil {
		t.Fatal(err)
	}
	shard := newShard(true)
	answer := []byte("*5\r\n:1\r\n:101\r\n:100\r\n:-1\r\n:1\r\n")
	var out []byte
	var replies []reply
	if n := testing.AllocsPerRun(1000, func() {
		out = codec.request(out[:0], keys.next(), 7)
		_, replies, _ = codec.replies(answer, replies[:0])
		shard.record([]sample{{outcome: replies[0].outcome}}, 1000, 0)
	}); n != 0 || shard.counts[refused] < 1000 {
		t.Errorf("%v allocations, %d refused", n, shard.counts[refused])
	}
}

// TestTemplate: a copy with the key in its places is what is encoded for the key, however long that is and wherever it stands.
func TestTemplate(t *testing.T) {
	o := &options{
		address: "x:1", policy: `a"b`, cost: 7, domain: "aab",
		descriptors: descriptors{list: [][]rlsEntry{{{"a", "a" + keyMark + "b"}, {"b", "b"}}, {{keyMark, keyMark}}}},
	}
	for name, made := range map[string]*template{
		"RESP": &newRESPCodec([]string{"ba", keyMark, "a" + keyMark + "b", keyMark}, false, "").template,
		"HTTP": &newHTTPCodec(o).template,
		"gRPC": &newRLSCodec(o).template,
	} {
		for _, key := range []string{"", "a", "ab", "key:1234", strings.Repeat("ab", longestKey/2), strings.Repeat("x", 300), "b"} {
			if got, want := made.append([]byte("before"), []byte(key)), "before"+string(made.encode(key)); string(got) != want {
				t.Errorf("%s, %q: %q, want %q", name, key, got, want)
			}
		}
	}
}
