package rlsapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec decodes and encodes calls by itself, and leaves all else to that of protocol buffers.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (o codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(*call)
	if !ok {
		return o.CodecV2.Unmarshal(data, v)
	}
	if n := data.Len(); n > longestRequest {
		c.tooLong = n
		return nil
	}
	if len(data) == 1 {
		return c.q.decode(string(data[0].ReadOnlyData()))
	}
	return c.q.decode(string(data.Materialize()))
}

// Marshal implements [encoding.CodecV2]. It ends a call.
func (o codec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*call)
	if !ok {
		return o.CodecV2.Marshal(v)
	}
	reply := append([]byte(nil), c.reply...) // what is sent is kept until the network has taken it
	c.service.calls.put(c)
	return mem.BufferSlice{mem.SliceBuffer(reply)}, nil
}
