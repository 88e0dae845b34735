package proxy

import (
	"errors"
	"math"
	"net"
	"strconv"
	"strings"
)

// word is a text that is not empty.
func word(s string) (string, error) {
	if s == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

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

// parseSize reads a number of bytes with its unit.
func parseSize(s string) (int64, error) {
	number, unit := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(number, "_", ""), 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, errors.New(
			"must be a whole number of bytes, KB, MB, GB, KiB, MiB or GiB from 0, such as 512KiB, below 2^63 bytes")
	}
	return int64(n) * unit, nil
}

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
