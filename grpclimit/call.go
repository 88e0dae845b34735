package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/policy/match"
)

// The Protocol of calls and of messages. A rule without a protocol applies to both.
const (
	// ProtocolCall is that of a call: a unary one, or the opening of a stream.
	ProtocolCall = "grpc"
	// ProtocolMessage is that of a message which is received on a stream.
	ProtocolMessage = "grpc-message"
)

// Call is what limits see of a call or of a message. The fields of the Request are those that rules match on: Protocol is
// ProtocolCall or ProtocolMessage, Method is POST, Host is the authority of the call, Path its full method, such as
// /package.Service/Method, Header the metadata, and Client the address of the client. A Call is valid only until the function
// that got it returns.
type Call struct {
	policy.Request

	// Message is the request of a unary call, or the message that was received. It is nil at the opening of a stream.
	Message any
	// ClientStreams and ServerStreams are true for the sides that may send several messages: neither in a unary call.
	ClientStreams, ServerStreams bool

	incoming header
	prefixes clientip.Prefixes
}

// Metadata is the first value that the client has sent under this name, "" if there is none. Case does not matter.
func (c *Call) Metadata(name string) string {
	if values := c.incoming.Values(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

var calls = sync.Pool{New: func() any { return new(Call) }}

// header is the metadata of a call as the header of a request.
type header struct {
	ctx context.Context
}

var _ match.Header = (*header)(nil)

// Values implements [match.Header] for names in any case, of which metadata has the lower one. A value that is there is
// copied by package metadata, which is one allocation.
func (h *header) Values(name string) []string {
	if h.ctx == nil {
		return nil
	}
	return metadata.ValueFromIncomingContext(h.ctx, lower(name))
}

// lowered are names in lower case by those in canonical form. Names come from rules, so there are few; the bound is for those
// that do not.
var (
	lowered      sync.Map
	loweredCount atomic.Int64
)

const mostLowered = 1024

// lower is the name in lower case, without allocating it again for each call.
func lower(name string) string {
	if !hasUpper(name) {
		return name
	}
	if l, ok := lowered.Load(name); ok {
		return l.(string) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	l := strings.ToLower(name)
	if loweredCount.Load() < mostLowered && len(name) <= keytext.MaxWhole {
		if _, loaded := lowered.LoadOrStore(strings.Clone(name), l); !loaded {
			loweredCount.Add(1)
		}
	}
	return l
}

func hasUpper(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			return true
		}
	}
	return false
}

// fill makes c that of a call. It must not be in use.
func (c *Call) fill(ctx context.Context, s *Server, fullMethod string) {
	*c = Call{incoming: header{ctx}, prefixes: s.clients.Prefixes()}
	c.Protocol, c.Method, c.Path, c.Header = ProtocolCall, "POST", fullMethod, &c.incoming
	c.Client, c.Context = s.client(ctx), ctx
	if s.host {
		c.Host = c.Metadata(":authority")
	}
}

// client is the address of the client of a call.
func (s *Server) client(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	var addr netip.Addr
	if tcp, isTCP := p.Addr.(*net.TCPAddr); isTCP {
		addr = clientip.Fold(tcp.AddrPort().Addr())
	} else if addr, ok = clientip.Parse(p.Addr.String()); !ok {
		addr = netip.Addr{}
	}
	if !s.clients.Trusts(addr) {
		return addr
	}
	client, ok := s.clients.Client(p.Addr.String(), metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"))
	if !ok {
		return netip.Addr{}
	}
	return client
}
