package clientip

import (
	"net/netip"
	"slices"
	"strings"
)

// Client is the address of the client of a request. It is that of the peer, unless the peer is trusted. Then the values of the
// header field X-Forwarded-For, in their order, are read from the right, past the trusted hops. remoteAddr is the peer as [Parse]
// reads it, such as the RemoteAddr of an http.Request.
//
// It returns false if there is no address: the peer has none, and is not trusted or sends none. Treat all such peers as one
// client.
//
// What is known ends at an entry that is empty, not an address, such as "unknown", or has a zone. The client is then the hop that
// wrote the entry. What is to its left is not believed. If all entries are trusted, the leftmost is the client: a proxy that made
// a request itself.
//
// Give it the field that the trusted proxies set. One that they pass on untouched is written by the client. So do not look into
// another field where this one is missing.
func (r *Resolver) Client(remoteAddr string, forwardedFor []string) (netip.Addr, bool) {
	return r.client(remoteAddr, forwardedFor, false)
}

// ClientForwarded is [Resolver.Client] for proxies that set the header field Forwarded of RFC 7239. forwarded are its values in
// their order; the parameter "for" of each element counts.
//
// What is known ends at an element without "for", with several, with "unknown" or an obfuscated name, or of another form than
// that of the RFC. The values are cut at their commas from the right, so a quote that a client leaves open cannot hide what a
// proxy has added. Backslashes in an address are not read.
func (r *Resolver) ClientForwarded(remoteAddr string, forwarded []string) (netip.Addr, bool) {
	return r.client(remoteAddr, forwarded, true)
}

// client reads the lines from the right, each up to its last comma. A function for the form of the entries would make
// them escape, hence the flag.
func (r *Resolver) client(remoteAddr string, lines []string, rfc7239 bool) (client netip.Addr, ok bool) {
	client, ok = Parse(remoteAddr)
	if !ok && r.hops == 0 && !r.trustUnixSocket || ok && !r.Trusts(client) {
		return client, ok
	}
	hops := 0
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			var (
				entry string
				addr  netip.Addr
				valid bool
			)
			if rfc7239 {
				line, entry, more = cutElement(line)
				addr, valid = parseElement(entry)
			} else {
				line, entry, more = cutEntry(line)
				addr, valid = parseHop(entry)
			}
			if !valid {
				return client, ok
			}
			client, ok = addr, true
			hops++
			if r.hops > 0 && hops == r.hops || r.hops == 0 && !r.contains(addr) {
				return client, true
			}
		}
	}
	return client, ok
}

// cutEntry cuts the last entry off a list.
func cutEntry(line string) (rest, entry string, more bool) {
	if comma := strings.LastIndexByte(line, ','); comma >= 0 {
		return line[:comma], trim(line[comma+1:]), true
	}
	return "", trim(line), false
}

func trim(s string) string { return strings.Trim(s, " \t") }

// parseHop reads an entry that another machine has written.
func parseHop(entry string) (netip.Addr, bool) {
	if strings.IndexByte(entry, '%') >= 0 {
		return netip.Addr{}, false
	}
	return Parse(entry)
}

// cutElement cuts the last element off a list whose commas may be in quotes. It counts quotes from the right, where they
// are in pairs because a proxy wrote them.
func cutElement(line string) (rest, element string, more bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"' && !isEscaped(line, i):
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return line[:i], trim(line[i+1:]), true
		}
	}
	return "", trim(line), false
}

// isEscaped reports whether an odd number of backslashes stands before s[i].
func isEscaped(s string, i int) bool {
	start := i
	for start > 0 && s[start-1] == '\\' {
		start--
	}
	return (i-start)%2 == 1
}

// parseElement reads the parameter "for" of an element of Forwarded.
func parseElement(element string) (addr netip.Addr, ok bool) {
	found := false
	for rest, more := element, true; more; {
		var pair string
		pair, rest, more = cutPair(rest)
		if pair = trim(pair); pair == "" {
			continue
		}
		name, value, isPair := strings.Cut(pair, "=")
		if !isPair {
			return netip.Addr{}, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if found {
			return netip.Addr{}, false
		}
		found = true
		if addr, ok = parseNode(value); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, ok
}

// cutPair cuts the first parameter off an element, at a semicolon that is not in quotes.
func cutPair(s string) (pair, rest string, more bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// parseNode reads a node: an address in quotes, with brackets if it is one of IPv6, and perhaps a port, which may be an
// obfuscated one. An IPv4 address without a port needs no quotes.
func parseNode(node string) (netip.Addr, bool) {
	if strings.HasPrefix(node, `"`) {
		if len(node) < 2 || node[len(node)-1] != '"' {
			return netip.Addr{}, false
		}
		node = node[1 : len(node)-1]
	}
	if port := strings.LastIndexByte(node, ':'); port >= 0 && isObfuscated(node[port+1:]) {
		node = node[:port]
	}
	return parseHop(node)
}

// isObfuscated reports whether s is a name that a proxy made up, such as "_SEVKISEK".
func isObfuscated(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return false
	}
	return true
}
