package keytext

import (
	"net/netip"
	"slices"
	"strings"
)

// The sizes of the networks that a client is usually counted under.
const (
	usualNet4 = 24
	usualNet6 = 64
)

// Word is what an operator looks for: the address of a client, a network, or a value of requests such as a user.
type Word struct {
	// Text is the word.
	Text string
	// Addr is the address that the word is, and Net the network that it is. Both are invalid for any other word. A port, a zone
	// and brackets are left out, and a mapped IPv4 address is the IPv4 address.
	Addr netip.Addr
	Net  netip.Prefix

	forms []string
}

// ParseWord returns the word that a text is.
func ParseWord(text string) *Word {
	w := &Word{Text: text}
	w.Add(text)
	w.Addr = address(text)
	switch {
	case w.Addr.Is4():
		w.Add(w.Addr.String())
		w.add(netip.PrefixFrom(w.Addr, usualNet4))
	case w.Addr.Is6():
		w.Add(w.Addr.String())
		w.add(netip.PrefixFrom(w.Addr, usualNet6))
	default:
		if net, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			w.Net = net.Masked()
			w.Add(w.Net.String())
		}
	}
	return w
}

// address is the address that a text is, invalid if it is none.
func address(text string) netip.Addr {
	text = strings.TrimSpace(text)
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().WithZone("").Unmap()
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.WithZone("").Unmap()
}

func (w *Word) add(net netip.Prefix) { w.Add(net.Masked().String()) }

// Add adds a text that stands for the word in keys. A long one is what [AppendPart] makes of it.
func (w *Word) Add(form string) {
	bounded := string(AppendPart(nil, form))
	joined := string(Escape([]byte(bounded), 0))
	// As a value in a key of descriptors.
	described := strings.NewReplacer(`\`, `\\`, `|`, `\|`).Replace(form)
	for _, f := range []string{form, bounded, joined, described} {
		if f != "" && !slices.Contains(w.forms, f) {
			w.forms = append(w.forms, f)
		}
	}
}

// Copy returns a word to which other forms can be added.
func (w *Word) Copy() *Word {
	c := *w
	c.forms = slices.Clone(w.forms)
	return &c
}

// Is reports whether an address is that of the word, or in its network.
func (w *Word) Is(addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	addr = addr.WithZone("").Unmap()
	return w.Addr == addr || w.Net.IsValid() && w.Net.Contains(addr)
}

// In reports whether a key, or another text, has the word as one of its parts: as all of it, or between characters that separate
// the parts of keys.
func (w *Word) In(text string) bool {
	for _, form := range w.forms {
		if w.has(text, form) {
			return true
		}
	}
	return w.Net.IsValid() && w.hasAddress(text)
}

// What separates the parts of keys and paths: other characters than those of a form with a colon or a slash, such as a network.
const (
	betweenNets  = ",|=;&@ \t()[]{}<>\"'?#+"
	betweenWords = betweenNets + "/:"
)

func (w *Word) has(text, form string) bool {
	if len(form) > len(text) {
		return false
	}
	between := betweenWords
	if (w.Addr.IsValid() || w.Net.IsValid()) && strings.ContainsAny(form, ":/") {
		between = betweenNets
	}
	for at := 0; ; at++ {
		i := strings.Index(text[at:], form)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(form)
		begins := at == 0 || strings.IndexByte(between, text[at-1]) >= 0
		if begins && (end == len(text) || strings.IndexByte(between, text[end]) >= 0) {
			return true
		}
	}
}

// hasAddress reports whether a text has an address or a network within that of the word.
func (w *Word) hasAddress(text string) bool {
	for text != "" {
		end := strings.IndexAny(text, betweenNets)
		if end < 0 {
			end = len(text)
		}
		part := text[:end]
		text = text[min(end+1, len(text)):]
		if w.Is(address(part)) || w.Net.Addr().Is4() && w.Is(address(part[strings.LastIndexByte(part, ':')+1:])) {
			return true
		}
		if net, err := netip.ParsePrefix(part); err == nil && net.Bits() >= w.Net.Bits() && w.Net.Contains(net.Addr()) {
			return true
		}
	}
	return false
}
