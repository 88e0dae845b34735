package grpclimit

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir/internal/keytext"
)

// KeyFunc returns the key of a call, the name under which it is limited. It is called once for each call and each message that is
// charged. An error is logged, and the client gets codes.Internal. "" is a key like any other, shared by all calls that have it.
// Keys of more than 256 bytes are replaced by their SHA-256.
type KeyFunc func(ctx context.Context, c *Call) (string, error)

// ByMethod keys calls by their full method.
func ByMethod(_ context.Context, c *Call) (string, error) { return c.Path, nil }

// ByMetadata keys calls by the first value of a name in the metadata; calls without it share the key "". Use it only for what has
// been checked before, such as an API key that is known to be valid: a client that can choose the value at will gets a new limit
// with each value. ByMetadata panics if name is "", which no call would have.
func ByMetadata(name string) KeyFunc {
	if name == "" {
		panic(`weir: grpclimit: ByMetadata(""): must be the name of metadata, such as x-api-key`)
	}
	name = strings.ToLower(name)
	return func(_ context.Context, c *Call) (string, error) { return c.Metadata(name), nil }
}

// ByAll keys calls by several keys together, such as client and method. No two different combinations have the same key,
// whatever is in them. It panics if there is none, which would be one key for all calls, and if one is nil.
func ByAll(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("weir: grpclimit: ByAll(): must be given one key at least")
	}
	own := make([]KeyFunc, len(keys))
	for i, k := range keys {
		if k == nil {
			panic("weir: grpclimit: ByAll: a key is nil: must be a function")
		}
		own[i] = k
	}
	return func(ctx context.Context, c *Call) (string, error) {
		var scratch [2 * keytext.MaxWhole]byte
		all := scratch[:0]
		for _, k := range own {
			key, err := k(ctx, c)
			if err != nil {
				return "", err
			}
			all = strconv.AppendInt(all, int64(len(key)), 10)
			all = append(all, ':')
			all = append(all, key...)
		}
		return string(all), nil
	}
}

// ByClient keys calls by the network address of the client, which ServerOptions.Clients finds. It is the default of
// ServerOptions.Key, and a part for [ByAll]. All peers without an IP address, which connect by a Unix socket, share one key.
func ByClient(ctx context.Context, c *Call) (string, error) {
	if !c.Client.IsValid() {
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			return p.Addr.Network(), nil
		}
		return "", nil
	}
	var scratch [64]byte
	return string(c.prefixes.AppendKey(scratch[:0], c.Client)), nil
}

// SkipHealth skips the calls of the health service, grpc.health.v1.Health. Reflection is limited: it is for people, and costs
// more than most calls.
func SkipHealth(_ context.Context, fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/")
}

// SkipNone skips no call.
func SkipNone(context.Context, string) bool { return false }
