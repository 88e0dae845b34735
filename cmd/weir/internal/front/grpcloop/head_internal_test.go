package grpcloop

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"weak"

	"golang.org/x/net/http2/hpack"
)

type noCalls struct{}

func (noCalls) Method(name string) (int, bool) { return len(name), len(name) > 1 }
func (noCalls) Waits() bool                    { return false }
func (noCalls) Answer(context.Context, int, []byte, *FaultError, []byte) ([]byte, error) {
	return nil, nil
}

// TestKnownBlocks: a block that has come before means what it says by the table as it is then.
func TestKnownBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	paths, timeouts := []string{"/a", "/bb", "/ccc", "/dddd"}, []string{"1S", "2S", "30m"}
	for range 50 {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		kept, fresh := newBlocks(noCalls{}), newBlocks(noCalls{})
		var last []byte
		for range 300 {
			switch random.IntN(20) {
			case 0:
				encoder.SetMaxDynamicTableSize(uint32(random.IntN(300)))
			case 1:
				encoder.SetMaxDynamicTableSize(4096)
			}
			block.Reset()
			fields := []hpack.HeaderField{
				{Name: ":method", Value: "POST"},
				{Name: ":scheme", Value: "http"},
				{Name: ":path", Value: paths[random.IntN(len(paths))]},
				{Name: ":authority", Value: "x", Sensitive: random.IntN(4) == 0},
				{Name: "content-type", Value: grpcType},
				{Name: "grpc-timeout", Value: timeouts[random.IntN(len(timeouts))], Sensitive: random.IntN(4) == 0},
			}
			for _, f := range fields[:len(fields)-random.IntN(2)] {
				if err := encoder.WriteField(f); err != nil {
					t.Fatal(err)
				}
			}
			b := block.Bytes()
			if last != nil && random.IntN(3) == 0 && !bytes.Contains(last, []byte{':'}) && !newBlocks(noCalls{}).changesTable(last) {
				b = last // the same bytes, whatever they mean now
			}
			fresh.known = fresh.known[:0]
			got, ok := kept.read(b)
			want, wantOK := fresh.read(b)
			if ok != wantOK || got.method != want.method || got.timeout != want.timeout {
				t.Fatalf("%+v %v, want %+v %v", got, ok, want, wantOK)
			}
			if !ok {
				break
			}
			last = bytes.Clone(b)
		}
	}
}

// TestBlocksAreNotKept: the buffer that a header was decoded from is free afterwards. A connection would keep 64 KiB otherwise.
func TestBlocksAreNotKept(t *testing.T) {
	d := newBlocks(noCalls{})
	kept := func() weak.Pointer[buffer] {
		b := new(buffer)
		if !d.decode(b[:copy(b[:], "\x86\x83\x04\x02/a")]) || len(d.fields) != 3 {
			t.Fatalf("%v", d.fields)
		}
		d.forget()
		return weak.Make(b)
	}()
	runtime.GC()
	if kept.Value() != nil {
		t.Error("it is kept")
	}
	if h, ok := d.read([]byte("\x86\x83\x04\x02/a")); !ok || h.refused == nil {
		t.Errorf("%+v afterwards", h)
	}
}

// FuzzBlocks decodes blocks of any bytes that come again: each means the same as if it had not been kept, by the table as it is then.
func FuzzBlocks(f *testing.F) {
	const call = "\x83\x86\x04\x02/a\x01\x01x\x0f\x10\x10" + grpcType
	f.Add([]byte(call), []byte("\x83\x86\x44\x02/b\xbe"), []byte{0, 0, 1, 0})
	f.Add([]byte(call+"\x40\x01b\x01c"), []byte(call+"\xbe"), []byte{0, 1, 1, 0, 1})
	f.Add([]byte("\x3f\xe1\x1f"+call), []byte("\x20"+call), []byte{0, 0, 1, 1, 0})
	f.Add([]byte("\x20\x3f\xe1\x1f"+call), []byte("\x3f\xe0\x1f"+call), []byte{0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, a, b, order []byte) {
		kept, fresh := newBlocks(noCalls{}), newBlocks(noCalls{})
		for i, which := range order[:min(len(order), 20)] {
			block := a
			if which%2 > 0 {
				block = b
			}
			fresh.known = nil
			got, ok := kept.read(block)
			want, wantOK := fresh.read(block)
			if told, wanted := headText(got), headText(want); ok != wantOK || told != wanted {
				t.Fatalf("%d: %x: %s %v, want %s %v", i, block, told, ok, wanted, wantOK)
			}
			if !ok {
				return
			}
		}
	})
}

// headText is all of a head, with what its pointers point to.
func headText(h head) string {
	var why refusal
	if h.refused != nil {
		why, h.refused = *h.refused, nil
	}
	return fmt.Sprintf("%+v %v %d %v", h, why.reset, why.http, why.err)
}
