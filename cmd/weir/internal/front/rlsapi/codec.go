package rlsapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec has messages decode themselves that can, and leaves all others to that of protocol buffers.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (o codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(interface{ UnmarshalWire(wire []byte) error })
	if !ok {
		return o.CodecV2.Unmarshal(data, v)
	}
	return m.UnmarshalWire(data.Materialize())
}
