package proxy

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
)

const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
)

// drop drops the fields of a request that the upstream does not get, so that no limit goes by one of them. These are the fields
// for this connection alone, as Connection names them or as they always are, but for those of isKept; and what a peer says that
// is not trusted: all fields by which proxies say where a request comes from and what it was before they changed it, and all that
// an upstream behind CGI cannot tell from these. Of a proxy that is trusted they stay also if Connection names them: it may have
// handed that on from its client.
func drop(h http.Header, trusted bool) {
	for _, listed := range h["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if !isKept[name] && !isForwarding(name, false) {
				delete(h, name)
			}
		}
	}
	for name := range h {
		if isForwarding(name, trusted) {
			delete(h, name)
		}
	}
	for _, name := range [...]string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection"} {
		delete(h, name)
	}
}

// isKept are the fields that a client may name in Connection in vain: of these the upstream gets what the proxy makes of them.
var isKept = map[string]bool{"Connection": true, "Content-Length": true, "Te": true, "Upgrade": true}

// forward sets the X-Forwarded headers of out, the request to the upstream, from those of in. The header Forwarded was dropped,
// as the chain in it would end here.
func forward(out, in *http.Request, peer netip.Addr, trusted bool) {
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

// forwardingPrefixes and forwardingNames are the fields, in lower case, by which proxies tell an upstream about the client and
// about the request as it was. A client must not set them: an upstream that believes one of them believes the proxy before it.
var (
	forwardingPrefixes = [...]string{"x-forwarded-", "x-original-", "x-rewrite-", "x-envoy-", "x-azure-"}
	forwardingNames    = [...]string{
		"forwarded", "x-forwarded", "forwarded-for", "x-forward-for", "x-real-ip", "x-real-port", "client-ip", "x-client-ip",
		"x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "cf-pseudo-ipv4", "fastly-client-ip",
		"fly-client-ip", "do-connecting-ip", "x-nf-client-connection-ip", "x-appengine-user-ip", "incap-client-ip",
		"ali-cdn-real-ip", "x-remote-ip", "x-remote-addr", "remote-addr", "x-originating-ip", "x-source-ip", "x-proxyuser-ip",
		"proxy-client-ip", "wl-proxy-client-ip", "x-host", "x-http-host-override", "front-end-https", "x-url-scheme",
		"x-scheme", "x-arr-ssl", strings.ToLower(answer.OverField),
	}
	// forwardingByName are forwardingNames in canonical form.
	forwardingByName = func() map[string]bool {
		all := make(map[string]bool, len(forwardingNames))
		for _, name := range forwardingNames {
			all[http.CanonicalHeaderKey(name)] = true
		}
		return all
	}()
)

// isForwarding reports whether a field, whose name is canonical, tells about the client or the original request, and must be
// dropped. With an underscore or a dot instead of a dash it is never from an honest proxy, but CGI and its kin read it as the
// same: some make an underscore of all that is neither a letter nor a digit. Proxy is no field of a request at all: CGI makes the
// variable HTTP_PROXY of it, which programs read as the address of a proxy.
func isForwarding(name string, trusted bool) bool {
	folded := name
	if strings.IndexFunc(name, isOdd) >= 0 {
		folded = http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
			if isOdd(c) {
				return '-'
			}
			return c
		}, name))
	} else if trusted {
		return name == "Proxy" || name == answer.OverField // which other proxies hand on from their clients
	}
	if folded == "Proxy" || forwardingByName[folded] {
		return true
	}
	for _, prefix := range forwardingPrefixes {
		if len(folded) >= len(prefix) && strings.EqualFold(folded[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// isOdd reports whether c is what CGI may make an underscore of, as of a dash.
func isOdd(c rune) bool {
	return c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
