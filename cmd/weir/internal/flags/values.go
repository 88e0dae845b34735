// Package flags has what the commands share of their command lines: values that know their range, the flags of limits, requests
// and logs, and the errors for wrong use of them. A value outside of its range is refused while the command line is read, with an
// error that says what is accepted. The program exits with 2 after an [Error] or an [InputError], and with 1 after any other.
package flags

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/inwords"
)

// Value is the value of a flag: how it is spelled, and how it is read.
type Value struct {
	kind  string
	words []string
	text  func() string
	set   func(s string) error
}

// Of returns a flag value that stores into p, whose value is the default, what parse makes of a text. Its kind is what help shows
// in place of a value.
func Of[T any](kind string, p *T, text func(T) string, parse func(s string) (T, error)) *Value {
	return &Value{kind: kind, text: func() string { return text(*p) }, set: func(s string) error {
		v, err := parse(s)
		if err == nil {
			*p = v
		}
		return err
	}}
}

// TextOf is Of a text that is kept as parse returns it.
func TextOf(kind string, p *string, parse func(s string) (string, error)) *Value {
	return Of(kind, p, func(s string) string { return s }, parse)
}

// String is the current value.
func (v *Value) String() string { return v.text() }

// Set parses and stores s.
func (v *Value) Set(s string) error { return v.set(s) }

// Type is what help shows in place of a value.
func (v *Value) Type() string { return v.kind }

// Words are what shells propose, nil if there is nothing to propose.
func (v *Value) Words() []string { return v.words }

// Int returns a flag value that stores into p, whose value is the default, numbers from lowest to highest. Underscores
// may separate digits.
func Int[T int | int64](p *T, lowest, highest T) *Value {
	return Of("n", p, func(n T) string { return strconv.FormatInt(int64(n), 10) }, func(s string) (T, error) {
		n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		if err != nil || n < int64(lowest) || n > int64(highest) {
			return 0, fmt.Errorf("must be a whole number from %d to %d", lowest, highest)
		}
		return T(n), nil
	})
}

// Some is [Int] for a number that need not be given: 0 stands for none.
func Some[T int | int64](p *T, lowest, highest T) *Value {
	v := Int(p, lowest, highest)
	v.text = func() string { return Unset(int64(*p)) }
	return v
}

// Unset is a number in words, "" for 0, which stands for a flag that is not given.
func Unset(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Duration returns a flag value that stores into p, whose value is the default, durations from shortest to longest, as
// [yamlread.ParseDuration] reads them.
func Duration(p *time.Duration, shortest, longest time.Duration) *Value {
	return Of("duration", p, inwords.Short, func(s string) (time.Duration, error) {
		d, ok := yamlread.ParseDuration(s)
		if !ok || d < shortest || d > longest {
			such := "500ms, 10s or 1m30s"
			switch {
			case longest > 24*time.Hour:
				such = "1m30s, 2h or 30d"
			case shortest >= time.Second:
				such = "10s or 1m30s"
			}
			return 0, fmt.Errorf("must be a duration such as %s, from %s to %s",
				such, inwords.Short(shortest), yamlread.ShortDuration(longest))
		}
		return d, nil
	})
}

// OneOf returns a flag value that stores into p, whose value is the default, one of the words.
func OneOf(p *string, words ...string) *Value {
	v := TextOf(strings.Join(words, "|"), p, func(s string) (string, error) {
		if slices.Contains(words, s) {
			return s, nil
		}
		err := "must be " + yamlread.OneOf(words)
		if nearest, ok := Nearest(s, words); ok {
			err += fmt.Sprintf("; did you mean %q?", nearest)
		}
		return "", Errorf("%s", err)
	})
	v.words = words
	return v
}

// Address is the kind of flags that are addresses to listen on.
const Address = "host:port"

// Listen returns a flag value that stores into p, whose value is the default, a host and a port to listen on. The host
// may be empty for all interfaces, the port 0 for any that is free.
func Listen(p *string) *Value {
	return TextOf(Address, p, func(s string) (string, error) {
		host, port, err := net.SplitHostPort(s)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || strings.ContainsAny(host, " /\t") {
			return "", errors.New(
				"must be host:port such as 127.0.0.1:7070, :7070 or [::1]:7070, with a port from 0 (any free) to 65535")
		}
		return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
	})
}

// File returns a flag value that stores into p, whose value is the default, the name of a file, which must not be empty.
func File(p *string) *Value {
	return TextOf("FILE", p, func(s string) (string, error) {
		if s == "" {
			return "", errors.New("must be the name of a file")
		}
		return s, nil
	})
}

// Networks returns a flag value that stores into p, whose value is the default, networks and addresses that are joined by
// commas. The first use of the flag replaces the default, each further one adds to it.
func Networks(p *[]netip.Prefix) *Value {
	given := false
	return Of("CIDR[,CIDR]", p, networksText, func(s string) ([]netip.Prefix, error) {
		var all []netip.Prefix
		if given {
			all = *p
		}
		for word := range strings.SplitSeq(s, ",") {
			n, ok := network(strings.TrimSpace(word))
			if !ok {
				return nil, fmt.Errorf("must be addresses or networks such as 10.0.0.0/8, joined by commas; %s is neither",
					Quote(strings.TrimSpace(word)))
			}
			all = append(all, n)
		}
		given = true
		return all, nil
	})
}

func networksText(all []netip.Prefix) string {
	words := make([]string, len(all))
	for i, n := range all {
		words[i] = n.String()
		if n.IsSingleIP() {
			words[i] = n.Addr().String()
		}
	}
	return strings.Join(words, ",")
}

// network reads an address or a network. IPv4-mapped ones are those of IPv4.
func network(word string) (netip.Prefix, bool) {
	n, err := netip.ParsePrefix(word)
	if err != nil {
		addr, err := netip.ParseAddr(word)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		n = netip.PrefixFrom(addr, addr.BitLen())
	}
	if addr := n.Addr(); addr.Is4In6() {
		const mapped = 128 - 32
		if n.Bits() < mapped {
			return netip.Prefix{}, false
		}
		n = netip.PrefixFrom(addr.Unmap(), n.Bits()-mapped)
	}
	return n.Masked(), true
}

// Text returns a flag value that stores into p, whose value is the default, any text of shortest to longest bytes.
func Text(p *string, shortest, longest int) *Value {
	return TextOf("text", p, func(s string) (string, error) {
		if len(s) < shortest || len(s) > longest {
			return "", fmt.Errorf("has %d bytes: must have from %d to %d", len(s), shortest, longest)
		}
		return s, nil
	})
}

// Printed is [Text] that is shown in terminals: UTF-8, of characters that print.
func Printed(p *string, shortest, longest int) *Value {
	return TextOf("text", p, func(s string) (string, error) {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return "", fmt.Errorf("must be %d to %d bytes of printable text in UTF-8", shortest, longest)
		}
		return s, Text(p, shortest, longest).Set(s)
	})
}

// UTF8 is [Text] that a server gets as JSON, which has no other bytes than those of UTF-8.
func UTF8(p *string, shortest, longest int) *Value {
	return TextOf("text", p, func(s string) (string, error) {
		if !utf8.ValidString(s) {
			return "", fmt.Errorf("must be %d to %d bytes of text in UTF-8", shortest, longest)
		}
		return s, Text(p, shortest, longest).Set(s)
	})
}

// StoreURL is where limits are shared, "" if it is not given. It is checked by Store, after the command line was read: what is
// wrong with the value of a flag is told with the value otherwise, and this one may have a password.
type StoreURL string

// Flag returns the flag value that stores into u. Help never shows its value.
func (u *StoreURL) Flag() *Value {
	return Of("url", u, func(StoreURL) string { return "" }, func(s string) (StoreURL, error) { return StoreURL(s), nil })
}

// Store returns the store, nil if there is none. The error is misuse of --store.
func (u *StoreURL) Store() (*config.Store, error) {
	if *u == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	s, err := config.ParseStore(string(*u))
	if wrong, ok := errors.AsType[*config.StoreError](err); ok {
		return nil, BadValue("store", wrong.Value, wrong.Message+"; "+wrong.Fix)
	}
	return s, err
}
