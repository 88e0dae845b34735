package clientip_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/clientip"
)

// entry is what a proxy has added: an address, or something else.
type entry struct {
	addr netip.Addr
	ok   bool
}

func entryOf(text string) entry {
	addr, ok := clientip.Parse(text)
	return entry{addr, ok && !strings.Contains(text, "%")}
}

// forwardedForEntries are those of X-Forwarded-For.
func forwardedForEntries(lines []string) (all []entry) {
	if len(lines) == 0 {
		return nil
	}
	for text := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		all = append(all, entryOf(strings.Trim(text, " \t")))
	}
	return all
}

var (
	pairForm    = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([!#$%&'*+.^_`|~0-9A-Za-z-]+|\"(?:[^\"\\\\]|\\\\.)*\")")
	commaForm   = regexp.MustCompile(`^[ \t]*,[ \t]*`)
	nodeForm    = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(:\d{1,4}|:_[0-9A-Za-z._-]+)?$`)
	unknownForm = regexp.MustCompile(`^(unknown|_[0-9A-Za-z._-]+)(:\d{1,5}|:_[0-9A-Za-z._-]+)?$`)
)

// forwardedEntries are those of a line of Forwarded, read from the left by the grammar of RFC 7239. They are not clear if the line
// is not of it.
func forwardedEntries(line string) (all []entry, isClear bool) {
	rest := strings.Trim(line, " \t")
	for {
		var nodes []string
		for {
			if pair := pairForm.FindStringSubmatch(rest); pair != nil {
				rest = rest[len(pair[0]):]
				if strings.EqualFold(pair[1], "for") {
					nodes = append(nodes, pair[2])
				}
			}
			if !strings.HasPrefix(rest, ";") {
				break
			}
			rest = rest[1:]
		}
		e := entry{}
		if len(nodes) == 1 {
			node := nodes[0]
			if strings.HasPrefix(node, `"`) {
				node = node[1 : len(node)-1]
			}
			found := nodeForm.FindStringSubmatch(node)
			if found == nil && !unknownForm.MatchString(node) {
				return nil, false
			}
			if found != nil {
				e = entryOf(found[1])
			}
		}
		all = append(all, e)
		if rest == "" {
			return all, true
		}
		comma := commaForm.FindString(rest)
		if comma == "" {
			return nil, false
		}
		rest = rest[len(comma):]
	}
}

// clientOf is the client that entries tell behind a trusted peer: the first from the right that is not trusted, or the one at so
// many hops.
func clientOf(peer netip.Addr, entries []entry, hops int, trusted netip.Prefix) netip.Addr {
	client := peer
	for i, e := range slices.Backward(entries) {
		if !e.ok {
			break
		}
		client = e.addr
		if hops == len(entries)-i || hops == 0 && !trusted.Contains(e.addr) {
			break
		}
	}
	return client
}

// FuzzClientIsTheReference compares the client with what a plain reading of the fields says, and puts honest proxies behind what
// a client has written: then it is the address that the first of them has added, whatever that was.
func FuzzClientIsTheReference(f *testing.F) {
	for _, seed := range []string{
		"", "198.51.100.7, 10.0.0.2", "10.0.0.3\n10.0.0.2", "[2001:db8::9]:4711 ,\t10.0.0.2:80",
		`for=192.0.2.9;host="a,\"b", for="[::1]:_x"`,
		`for="`, `for="\`, ",", " ", "::ffff:10.0.0.9,10.0.0.2", `for=unknown, for=10.0.0.2;;by=_x,FOR="10.0.0.2:80"`, `for=10.0.0.2;for=10.0.0.2`,
	} {
		for how := range uint8(8) {
			f.Add(seed, how*37)
		}
	}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	peer := netip.MustParseAddr("10.0.0.1")
	networks := resolver(f, clientip.Options{TrustedProxies: []netip.Prefix{trusted}})
	hops := [...]*clientip.Resolver{
		resolver(f, clientip.Options{TrustedHops: 1}), resolver(f, clientip.Options{TrustedHops: 2}),
		resolver(f, clientip.Options{TrustedHops: 3}),
	}
	f.Fuzz(func(t *testing.T, claim string, how uint8) {
		var lines []string
		if claim != "" {
			lines = strings.Split(claim, "\n")
		}
		client := netip.MustParseAddr([]string{"192.0.2.99", "2001:db8::99"}[how&1])
		proxies, joined, ported, spaced := 1+int(how>>1&3)%3, how>>3&1 == 1, how>>4&1 == 1, how>>5&1 == 1
		for _, rfc7239 := range []bool{false, true} {
			read := (*clientip.Resolver).Client
			entries, isClear := forwardedForEntries(lines), true
			if rfc7239 {
				read = (*clientip.Resolver).ClientForwarded
				entries = nil
				for _, line := range lines {
					more, ok := forwardedEntries(line)
					entries, isClear = append(entries, more...), isClear && ok
				}
			}
			if isClear {
				if got, want := first(read(networks, peer.String(), lines)), clientOf(peer, entries, 0, trusted); got != want {
					t.Errorf("RFC 7239 %t: %q: %v, want %v", rfc7239, lines, got, want)
				}
				for i, r := range hops {
					if got, want := first(read(r, peer.String(), lines)), clientOf(peer, entries, 1+i, trusted); got != want {
						t.Errorf("RFC 7239 %t, %d hops: %q: %v, want %v", rfc7239, 1+i, lines, got, want)
					}
				}
			}
			all := slices.Clone(lines)
			for i := range proxies {
				added := client
				if i > 0 {
					added = netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)})
				}
				text := addedText(added, ported, rfc7239)
				switch {
				case joined && len(all) > 0 && spaced:
					all[len(all)-1] += ", " + text
				case joined && len(all) > 0:
					all[len(all)-1] += "," + text
				default:
					all = append(all, text)
				}
			}
			for _, r := range []*clientip.Resolver{networks, hops[proxies-1]} {
				if got, ok := read(r, peer.String(), all); !ok || got != client {
					t.Errorf("RFC 7239 %t, %d proxies: %q: %v, want %v", rfc7239, proxies, all, got, client)
				}
			}
		}
	})
}

func first(a netip.Addr, _ bool) netip.Addr { return a }

// addedText is how a proxy writes an address.
func addedText(a netip.Addr, ported, rfc7239 bool) string {
	text := a.String()
	if a.Is6() && (ported || rfc7239) {
		text = "[" + text + "]"
	}
	if ported {
		text += ":4711"
	}
	if rfc7239 {
		return fmt.Sprintf("for=%q;host=\"a,\\\"b\\\\\"", text)
	}
	return text
}
