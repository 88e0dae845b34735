package rlsapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec encodes calls by itself, and leaves all else to that of protocol buffers, or to the message.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

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

// Unmarshal implements [encoding.CodecV2].
func (o codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(interface{ UnmarshalWire(wire []byte) error })
	if !ok {
		return o.CodecV2.Unmarshal(data, v)
	}
	return m.UnmarshalWire(data.Materialize())
}
