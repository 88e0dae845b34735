package proxy

import (
	"net/http"
	"net/netip"
	"strings"
)

const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
)

// forward sets the X-Forwarded headers of out, the request to the upstream, from those of in. What a peer says that is
// not trusted is dropped: X-Forwarded-*, X-Real-IP, and all that an upstream behind CGI cannot tell from these. The
// header Forwarded is always dropped, as the chain in it would end here.
func forward(out, in *http.Request, peer netip.Addr, trusted bool) {
	for name := range out.Header {
		if isForwarding(name, trusted) {
			delete(out.Header, name)
		}
	}
	proto := schemeHTTP
	if in.TLS != nil {
		proto = schemeHTTPS
	}
	host := in.Host
	var chain string
	if trusted {
		chain = strings.Trim(strings.Join(in.Header[forwardedFor], ", "), " \t,")
		if said := in.Header.Get(forwardedProto); said != "" {
			proto = said
		}
		if said := in.Header.Get(forwardedHost); said != "" {
			host = said
		}
	}
	if peer.IsValid() {
		if chain != "" {
			chain += ", "
		}
		chain += peer.String()
	}
	set(out.Header, forwardedFor, chain)
	set(out.Header, forwardedHost, host)
	set(out.Header, forwardedProto, proto)
}

func set(h http.Header, canonical, value string) {
	if value == "" {
		delete(h, canonical)
		return
	}
	h[canonical] = []string{value}
}

// isForwarding tells whether a header says where a request comes from. With an underscore instead of a dash it is never
// from an honest proxy, but CGI and its kin read it as the same.
func isForwarding(name string, trusted bool) bool {
	const prefix = "x-forwarded-"
	if len(name) < len("forwarded") || name[0]|0x20 != 'x' && name[0]|0x20 != 'f' {
		return false
	}
	folded := name
	if strings.IndexByte(name, '_') >= 0 {
		folded = strings.ReplaceAll(name, "_", "-")
	} else if trusted {
		return false
	}
	return len(folded) >= len(prefix) && strings.EqualFold(folded[:len(prefix)], prefix) ||
		strings.EqualFold(folded, "x-real-ip") || strings.EqualFold(folded, "forwarded")
}
