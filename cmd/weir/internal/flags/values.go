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

	"github.com/weirhq/weir/config"
)

// Integer is a whole number in a range.
type Integer[T int | int64] struct {
	p        *T
	min, max T
}

// Int returns a flag value that stores into p, whose value is the default, numbers from lowest to highest. Underscores
// may separate digits.
func Int[T int | int64](p *T, lowest, highest T) *Integer[T] { return &Integer[T]{p, lowest, highest} }

// String is the current value.
func (v *Integer[T]) String() string {
	if v.p == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*v.p), 10)
}

// Set parses and stores s.
func (v *Integer[T]) Set(s string) error {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || n < int64(v.min) || n > int64(v.max) {
		return fmt.Errorf("must be a whole number from %d to %d", v.min, v.max)
	}
	*v.p = T(n)
	return nil
}

// Type is what help shows in place of a value.
func (*Integer[T]) Type() string { return "n" }

// Time is a duration in a range.
type Time struct {
	p        *time.Duration
	min, max time.Duration
}

// Duration returns a flag value that stores into p, whose value is the default, durations from shortest to longest, as
// [time.ParseDuration] reads them.
func Duration(p *time.Duration, shortest, longest time.Duration) *Time {
	return &Time{p, shortest, longest}
}

// String is the current value.
func (v *Time) String() string {
	if v.p == nil {
		return "0s"
	}
	return Short(*v.p)
}

// Set parses and stores s.
func (v *Time) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < v.min || d > v.max {
		short := "500ms, "
		if v.min >= time.Second {
			short = ""
		}
		return fmt.Errorf("must be a duration such as %s10s or 1m30s, from %s to %s", short, Short(v.min), Short(v.max))
	}
	*v.p = d
	return nil
}

// Type is what help shows in place of a value.
func (*Time) Type() string { return "duration" }

// Short is d without units that are zero: 1h, not 1h0m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Choice is one of a few words.
type Choice struct {
	p     *string
	words []string
}

// OneOf returns a flag value that stores into p, whose value is the default, one of the words.
func OneOf(p *string, words ...string) *Choice { return &Choice{p, words} }

// String is the current value.
func (v *Choice) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set stores s if it is one of the words.
func (v *Choice) Set(s string) error {
	if !slices.Contains(v.words, s) {
		err := "must be " + listed(v.words)
		if nearest, ok := Nearest(s, v.words); ok {
			err += fmt.Sprintf("; did you mean %q?", nearest)
		}
		return Errorf("%s", err)
	}
	*v.p = s
	return nil
}

// Type is what help shows in place of a value.
func (v *Choice) Type() string { return strings.Join(v.words, "|") }

// Words are all values, for shells to complete.
func (v *Choice) Words() []string { return v.words }

// listed is "a, b or c".
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// HostPort is an address to listen on.
type HostPort struct{ p *string }

// Listen returns a flag value that stores into p, whose value is the default, a host and a port to listen on. The host
// may be empty for all interfaces, the port 0 for any that is free.
func Listen(p *string) *HostPort { return &HostPort{p} }

// String is the current value.
func (v *HostPort) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set stores s if it is a host and a port.
func (v *HostPort) Set(s string) error {
	host, port, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || strings.ContainsAny(host, " /\t") {
		return errors.New("must be host:port such as 127.0.0.1:7070, :7070 or [::1]:7070, with a port from 0 (any free) to 65535")
	}
	*v.p = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	return nil
}

// Type is what help shows in place of a value.
func (*HostPort) Type() string { return "host:port" }

// Path is the name of a file.
type Path struct{ p *string }

// File returns a flag value that stores into p, whose value is the default, the name of a file, which must not be empty.
func File(p *string) *Path { return &Path{p} }

// String is the current value.
func (v *Path) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set stores s.
func (v *Path) Set(s string) error {
	if s == "" {
		return errors.New("must be the name of a file")
	}
	*v.p = s
	return nil
}

// Type is what help shows in place of a value, and lets shells complete files.
func (*Path) Type() string { return "FILE" }

// CIDRs are networks.
type CIDRs struct {
	p     *[]netip.Prefix
	given bool
}

// Networks returns a flag value that stores into p, whose value is the default, networks and addresses that are joined by
// commas. The first use of the flag replaces the default, each further one adds to it.
func Networks(p *[]netip.Prefix) *CIDRs { return &CIDRs{p: p} }

// String is the current value.
func (v *CIDRs) String() string {
	if v.p == nil {
		return ""
	}
	words := make([]string, len(*v.p))
	for i, n := range *v.p {
		words[i] = n.String()
		if n.IsSingleIP() {
			words[i] = n.Addr().String()
		}
	}
	return strings.Join(words, ",")
}

// Set parses and adds s.
func (v *CIDRs) Set(s string) error {
	var all []netip.Prefix
	for word := range strings.SplitSeq(s, ",") {
		n, ok := network(strings.TrimSpace(word))
		if !ok {
			return fmt.Errorf("must be addresses or networks such as 10.0.0.0/8, joined by commas; %s is neither",
				Quote(strings.TrimSpace(word)))
		}
		all = append(all, n)
	}
	if !v.given {
		*v.p, v.given = nil, true
	}
	*v.p = append(*v.p, all...)
	return nil
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

// Type is what help shows in place of a value.
func (*CIDRs) Type() string { return "CIDR[,CIDR]" }

// Words is any text of a length in bytes.
type Words struct {
	p        *string
	min, max int
}

// Text returns a flag value that stores into p, whose value is the default, any text of shortest to longest bytes.
func Text(p *string, shortest, longest int) *Words { return &Words{p, shortest, longest} }

// String is the current value.
func (v *Words) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set stores s.
func (v *Words) Set(s string) error {
	if len(s) < v.min || len(s) > v.max {
		return fmt.Errorf("has %d bytes: must have from %d to %d", len(s), v.min, v.max)
	}
	*v.p = s
	return nil
}

// Type is what help shows in place of a value.
func (*Words) Type() string { return "text" }

// StoreURL is where limits are shared, "" if it is not given. It is checked by Store, after the command line was read: what is
// wrong with the value of a flag is told with the value otherwise, and this one may have a password.
type StoreURL string

// String is never the value: help would show it.
func (*StoreURL) String() string { return "" }

// Set keeps the value.
func (u *StoreURL) Set(s string) error {
	*u = StoreURL(s)
	return nil
}

// Type is what help shows in place of a value.
func (*StoreURL) Type() string { return "url" }

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
