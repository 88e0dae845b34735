package accesslog

import (
	"math/rand/v2"
)

// The tests of this file put lines together from parts that are likely to be
// read wrongly and compare the parsers with the slow ones of the other tests.

var (
	someClients = []string{
		"192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:443", "::ffff:192.0.2.1", "client.example.org",
		"client.example.org:80", "unix:", "-", "192.0.2.256", "::1:", "[::1", "a,b", "fe80::1%eth0",
	}
	someTimes = []string{
		"01/Jul/2024:12:00:00 +0000", "01/Jul/2024:12:00:01 +0000", "01/Jul/2024:12:01:01 +0000", "01/Jul/2024:12:01:01 +0200",
		"31/Jun/2024:12:00:00 +0000", "30/Jun/2024:23:59:60 +0000", "30/Jun/2024:23:59:60 +0100", "2024-07-01T12:00:00.25Z",
		"2024-07-01 12:00:00", "1719835200.5", "1719835200500", "7", "-", "now",
	}
	someTargets = []string{
		"/", "/a?b=c", "/a?b?c#d", "/?", "?", "", "*", "-", "//x/y", "/a b", `/\"\\`, `\x2f\x3f`, "/ä\xff", "http://www.example.com/a?b",
		"HTTPS://u:p@[2001:db8::1]:8443?x", "http://", "ftp://www.example.com/", "www.example.com:443", "/%41", " ", "HTTP/1.1",
	}
	someMethods = []string{"GET", "POST", "CONNECT", "get", "M-SEARCH", "G(T", "", "-", `\x16\x03`}
	someEndings = []string{" HTTP/1.1", " HTTP/2.0", " HTTP/", "", " ", " http/1.1"}
	someCodes   = []string{"200", "404", "999", "100", "099", "000", "-"}
	someSizes   = []string{"0", "17", "-", "9223372036854775807", "9223372036854775808", "00012"}
	someTexts   = []string{"", "-", "x", `\"`, `\\`, `a \"b\" c`, `\x41\q\` + "\t", "ä\xff", "Mozilla/5.0 (X11; Linux x86_64)"}
)

func oneOf(random *rand.Rand, list []string) string { return list[random.IntN(len(list))] }

// replaceInvalid does what encoding/json does to bytes that are not UTF-8.
func replaceInvalid(e *entry) {
	for _, s := range []*string{&e.name, &e.host, &e.method, &e.path, &e.query, &e.referer, &e.userAgent} {
		*s = string([]rune(*s))
	}
}
