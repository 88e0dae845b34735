package proxy

import (
	"errors"
	"math"
	"net"
	"strconv"
	"strings"
)

// upstreamValue is a flag value that holds an Upstream.
type upstreamValue struct{ Upstream }

// Set implements pflag.Value.
func (v *upstreamValue) Set(s string) error {
	u, err := ParseUpstream(s)
	if err == nil {
		v.Upstream = u
	}
	return err
}

// Type implements pflag.Value.
func (*upstreamValue) Type() string { return "URL" }

// wordValue is a flag value that holds a text of some kind.
type wordValue struct {
	p    *string
	kind string
}

// String implements pflag.Value.
func (v *wordValue) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set implements pflag.Value. What is given must not be empty.
func (v *wordValue) Set(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	*v.p = s
	return nil
}

// Type implements pflag.Value.
func (v *wordValue) Type() string { return v.kind }

// sizeValue is a flag value that holds a number of bytes.
type sizeValue int64

// sizeUnits go from long to short, so that the suffix B is tried last.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"b", 1},
}

// String implements pflag.Value. 0 is the default and says nothing.
func (v *sizeValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*v), 10)
}

// Set implements pflag.Value.
func (v *sizeValue) Set(s string) error {
	number, unit := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(number, "_", ""), 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return errors.New("must be a whole number of bytes, KB, MB, GB, KiB, MiB or GiB from 0, such as 512KiB, below 2^63 bytes")
	}
	*v = sizeValue(int64(n) * unit)
	return nil
}

// Type implements pflag.Value.
func (*sizeValue) Type() string { return "size" }

// isHost reports whether s can be the value of a Host header.
func isHost(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if !isPort(port) {
			return false
		}
		host = h
	} else if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && net.ParseIP(inner) != nil
	} else if strings.Contains(s, ":") {
		return false
	}
	return host != "" && !strings.ContainsFunc(host, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`/\?#@[]<>"`, c)
	})
}

// leadsTo reports whether a connection to address, host and port, surely arrives at a listener on listen.
func leadsTo(address, listen string) bool {
	host, port, err := net.SplitHostPort(address)
	listenHost, listenPort, listenErr := net.SplitHostPort(listen)
	if err != nil || listenErr != nil || port != listenPort {
		return false
	}
	if host == listenHost {
		return true
	}
	local := func(host string) bool {
		ip := net.ParseIP(host)
		return host == "" || strings.EqualFold(host, "localhost") || ip.IsLoopback() || ip.IsUnspecified()
	}
	everywhere := listenHost == "" || net.ParseIP(listenHost).IsUnspecified()
	return local(host) && (everywhere || strings.EqualFold(host, "localhost") && local(listenHost))
}
