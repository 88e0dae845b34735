package accesslog

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	client := addr("192.0.2.1")
	for _, test := range []struct {
		name, line string
		want       entry
	}{
		{
			"common",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /a/b?c=d&e HTTP/1.1" 200 512`,
			entry{time: noon, client: client, method: "GET", path: "/a/b", query: "c=d&e", status: 200, bytes: 512},
		},
		{
			"combined",
			`192.0.2.1 - frank [01/Jul/2024:14:00:00 +0200] "POST /login HTTP/2.0" 302 - "https://www.example.com/" "curl/8.5.0"`,
			entry{time: noon, client: client, method: "POST", path: "/login", status: 302, referer: "https://www.example.com/", userAgent: "curl/8.5.0"},
		},
		{
			"missing values",
			`- - - [01/Jul/2024:12:00:00 +0000] "-" - - "-" "-"`,
			entry{time: noon},
		},
		{
			"no bytes field",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 204`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 204},
		},
		{
			"further fields",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x" 17 "router@file" "http://10.0.0.1:80" 3ms`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5, userAgent: "x"},
		},
		{
			"further fields of common format",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 0.003 "not a referer"`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"IPv6",
			`2001:db8::1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: addr("2001:db8::1"), method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"IPv4-mapped",
			`::ffff:192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"client with port",
			`192.0.2.1:4711 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"client name",
			`client.example.org - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, name: "client.example.org", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"client name, identity and user with a space",
			`client.example.org:80 - john smith [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, name: "client.example.org", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"virtual host with port",
			`www.example.com:443 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"virtual host with port, client name",
			`www.example.com:443 client.example.org - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, name: "client.example.org", host: "www.example.com", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"virtual host without port",
			`www.example.com 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"virtual host is an address",
			`[2001:db8::2]:8080 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, host: "2001:db8::2", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"virtual host missing",
			`- 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"list of forwarded addresses",
			`203.0.113.1, 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, name: "203.0.113.1,", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"user with a time in it",
			`192.0.2.1 - a [05/May/2005:05:05:05 +0000] \"GET [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"empty user in quotes",
			`192.0.2.1 - "" [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 401 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 401, bytes: 5},
		},
		{
			"time and request in the path",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /?[05/May/2005:05:05:05 +0000] \"GET / HTTP/1.1\" 200 HTTP/1.1" 404 5`,
			entry{time: noon, client: client, method: "GET", path: "/", query: `[05/May/2005:05:05:05 +0000] "GET / HTTP/1.1" 200`, status: 404, bytes: 5},
		},
		{
			"escapes",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /\"\\\x22\t?\xC3\xa4\q\x4 HTTP/1.1" 200 5 "\\" "say \"hi\"\n\r\v\b\f\\"`,
			entry{time: noon, client: client, method: "GET", path: "/\"\\\"\t", query: "ä\\q\\x4", status: 200, bytes: 5, referer: `\`, userAgent: "say \"hi\"\n\r\v\b\f\\"},
		},
		{
			"quotes that were not escaped",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /a"b"c HTTP/1.1" 200 5 "r"r" "u"u"`,
			entry{time: noon, client: client, method: "GET", path: `/a"b"c`, status: 200, bytes: 5, referer: `r"r`, userAgent: `u"u`},
		},
		{
			"user agent without closing quote",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Mozilla/5.0 (compatible; Bo`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5, userAgent: "Mozilla/5.0 (compatible; Bo"},
		},
		{
			"user agent that ends in an escape",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x\`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5, userAgent: `x\`},
		},
		{
			"referer without closing quote",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "https://www.exa`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5, referer: "https://www.exa"},
		},
		{
			"only the opening quote of the referer",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"TLS handshake",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "\x16\x03\x01\x02\x00\x01" 400 226 "-" "-"`,
			entry{time: noon, client: client, status: 400, bytes: 226},
		},
		{
			"empty request",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "" 400 0`,
			entry{time: noon, client: client, status: 400},
		},
		{
			"connection that ended early",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 000 0`,
			entry{time: noon, client: client, method: "GET", path: "/"},
		},
		{
			"HTTP/0.9",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"method without target",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET HTTP/1.1" 400 5`,
			entry{time: noon, client: client, status: 400, bytes: 5},
		},
		{
			"spaces in the path",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /a b  c HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/a b  c", status: 200, bytes: 5},
		},
		{
			"absolute target",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET http://u@www.example.com:8080/a?b HTTP/1.1" 200 5`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", path: "/a", query: "b", status: 200, bytes: 5},
		},
		{
			"absolute target without path",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET http://www.example.com?b=/ HTTP/1.1" 200 5`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", query: "b=/", status: 200, bytes: 5},
		},
		{
			"virtual host before absolute target",
			`www.example.com:80 192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET http://other.example.com/ HTTP/1.1" 200 5`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"CONNECT",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "CONNECT www.example.com:443 HTTP/1.1" 405 5`,
			entry{time: noon, client: client, host: "www.example.com", method: "CONNECT", status: 405, bytes: 5},
		},
		{
			"asterisk",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "OPTIONS * HTTP/1.0" 200 5`,
			entry{time: noon, client: client, method: "OPTIONS", path: "*", status: 200, bytes: 5},
		},
		{
			"other times",
			`192.0.2.1 - - [2024-07-01T14:00:00.5+02:00] "GET / HTTP/1.1" 200 5`,
			entry{time: noon + 5e8, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"several blanks",
			"\t192.0.2.1  -\t- [01/Jul/2024:12:00:00 +0000] \"GET / HTTP/1.1\"  200\t5  \"-\"  \"x\"  \r",
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5, userAgent: "x"},
		},
		{
			"client and time alone",
			`192.0.2.1 [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 200, bytes: 5},
		},
		{
			"largest size",
			`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 999 9223372036854775807`,
			entry{time: noon, client: client, method: "GET", path: "/", status: 999, bytes: 1<<63 - 1},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, reason := readOne(t, test.line)
			if reason != "" || got != test.want {
				t.Errorf("%s\n got %+v %s\nwant %+v", test.line, got, reason, test.want)
			}
		})
	}
}

func TestTextMalformed(t *testing.T) {
	const noFormat = `line: not the common or combined log format: no [time] "request"`
	for line, want := range map[string]string{
		"hello":         noFormat,
		"#Version: 1.0": noFormat,
		"\x00\x00\x00":  noFormat,
		`"`:             noFormat,
		`] "`:           `line: not the common or combined log format: no client before the [time]`,
		`[] "`:          `line: not the common or combined log format: no client before the [time]`,
		`[01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`:                                 `line: not the common or combined log format: no client before the [time]`,
		`192.0.2.1[01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`:                        `line: not the common or combined log format: no client before the [time]`,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000]`:                                          noFormat,
		`192.0.2.1 - - 01/Jul/2024:12:00:00 +0000 "GET / HTTP/1.1" 200 5`:                     noFormat,
		`192.0.2.1 - - [] "GET / HTTP/1.1" 200 5`:                                             `time "": ` + wantTime,
		`192.0.2.1 - - [31/Jun/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`:                   `time "31/Jun/2024:12:00:00 +0000": ` + wantDay,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1 200 5`:                    `request "GET / HTTP/1.1 200 5": no closing quote`,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1\" 200 5`:                  `request "GET / HTTP/1.1\" 200 5": no closing quote`,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1"`:                         `status "": ` + wantStatus,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" OK 5`:                    `status "OK": ` + wantStatus,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 099 5`:                   `status "099": ` + wantStatus,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 2000 5`:                  `status "2000": ` + wantStatus,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 -5`:                  `bytes "-5": ` + wantSize,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 9223372036854775808`: `bytes "9223372036854775808": ` + wantSize,
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 "-" "-"`:             `bytes "\"-\"": ` + wantSize,
	} {
		if got, reason := readOne(t, line); reason != strings.ReplaceAll(want, `\"-\"`, `"-"`) {
			t.Errorf("%s\n got %q %+v\nwant %q", line, reason, got, want)
		}
	}
}

// combined is the strict form of the formats. Lines that match it must be read,
// and as the slow parser below reads them.
var combined = regexp.MustCompile(`^([^ \t\r{"\[\x{FEFF}][^ \t\r\n"\[]*) ([^ \t\r\n"\[]+) ([^ \t\r\n"\[]+) \[([^\[\]\n]+)\] "((?:[^"\\\n]|\\[^\n])*)" (\d{3}|-) (\d+|-)(?: "((?:[^"\\\n]|\\[^\n])*)" "((?:[^"\\\n]|\\[^\n])*)")?$`)

func referenceText(line string) (e entry, malformed, matched bool) {
	m := combined.FindStringSubmatch(line)
	if m == nil {
		return entry{}, false, false
	}
	ns, ok := referenceTime(m[4])
	if !ok {
		return entry{}, true, true
	}
	e.time = ns
	e.client, e.name = referenceClient(m[1])
	if _, err := netip.ParseAddr(m[1]); err != nil && !strings.Contains(m[1], ",") {
		if _, err := netip.ParseAddr(m[2]); err == nil {
			return entry{}, false, false // a virtual host and a client, without identity
		}
	}
	if m[6] != "-" {
		e.status, _ = strconv.Atoi(m[6])
	}
	if e.status > 0 && e.status < 100 {
		return entry{}, true, true
	}
	if m[7] != "-" {
		n, err := strconv.ParseInt(m[7], 10, 64)
		if err != nil {
			return entry{}, true, true
		}
		e.bytes = n
	}
	request := referenceUnescape(m[5])
	referenceRequest(&e, request)
	e.referer, e.userAgent = noDash(referenceUnescape(m[8])), noDash(referenceUnescape(m[9]))
	return e, false, true
}

var (
	methodToken = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]+$")
	absolute    = regexp.MustCompile(`(?s)^[Hh][Tt][Tt][Pp][Ss]?://(?:[^/?]*@)?([^/?]*)(.*)$`) //nolint:gocritic // it spells https
	hostPort    = regexp.MustCompile(`(?s)^(?:\[([^\]]+)\]|([^:\[][^:]*))(?::(\d{1,5}))?$`)
	logEscape   = regexp.MustCompile(`\\(?:["\\nrtvbf]|x[0-9A-Fa-f]{2})`)
)

func noDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func referenceUnescape(s string) string {
	return logEscape.ReplaceAllStringFunc(s, func(escape string) string {
		if escape[1] == 'x' {
			c, _ := strconv.ParseUint(escape[2:], 16, 8)
			return string([]byte{byte(c)})
		}
		return map[byte]string{'"': `"`, '\\': `\`, 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", 'b': "\b", 'f': "\f"}[escape[1]]
	})
}

func referenceHost(s string) string {
	m := hostPort.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	if port, _ := strconv.Atoi(m[3]); port > 65535 {
		return s
	}
	return m[1] + m[2]
}

func referenceClient(s string) (netip.Addr, string) {
	if client, err := netip.ParseAddr(s); err == nil {
		return client.Unmap(), ""
	}
	s = referenceHost(noDash(s))
	if client, err := netip.ParseAddr(s); err == nil {
		return client.Unmap(), ""
	}
	return netip.Addr{}, s
}

func referenceRequest(e *entry, request string) {
	parts := strings.Split(request, " ")
	if n := len(parts); n > 1 && strings.HasPrefix(parts[n-1], "HTTP/") {
		parts = parts[:n-1]
	}
	if target := strings.Join(parts[1:], " "); target != "" && methodToken.MatchString(parts[0]) {
		e.method = parts[0]
		referenceTarget(e, target)
	}
}

func referenceTarget(e *entry, target string) {
	host := ""
	switch m := absolute.FindStringSubmatch(target); {
	case target == "" || target[0] == '/':
	case e.method == "CONNECT":
		host, target = target, ""
	case m != nil:
		host, target = m[1], m[2]
	}
	if e.host == "" {
		e.host = referenceHost(noDash(host))
	}
	e.path, e.query, _ = strings.Cut(target, "?")
}

// FuzzText compares the parser with a regular expression where that applies,
// and checks on all other lines that a line is one record or one malformed line.
func FuzzText(f *testing.F) {
	for _, line := range sampleLines(f) {
		f.Add(line)
	}
	for _, seed := range []string{
		`192.0.2.1 - - [01/Jul/2024:12:00:00 +0000] "GET /\"\\\x22\t?\xC3\xa4\q\x4 HTTP/1.1" 200 5 "\\" "say \"hi\"\n\\"`,
		`www.example.com:443 client.example.org - - [01/Jul/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5`,
		`192.0.2.1 - "" [01/Jul/2024:12:00:00 +0000] "GET http://u@[2001:db8::1]:80?x HTTP/1.1" 000 -`,
		`192.0.2.1:80 - - [01/Jul/2024:12:00:00 +0000] "CONNECT www.example.com:443 HTTP/1.1" - 9223372036854775808`,
		`192.0.2.1 - - [1719835200.5] "GET /a"b"c HTTP/1.1" 200 5 "r"r" "u"u`,
		`a b c [2024-07-01 12:00:00] "" 200 5`,
		`a b c [ [01/Jul/2024:12:00:00 +0000] "" 000 0`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n") || strings.TrimLeft(strings.TrimPrefix(line, "\ufeff"), " \t\r") == "" || strings.HasPrefix(line, "{") {
			return
		}
		got, reason := readOne(t, line)
		want, malformed, matched := referenceText(strings.TrimRight(line, " \t\r"))
		if !matched {
			return
		}
		if malformed != (reason != "") || got != want {
			t.Errorf("%q\n got %+v %s\nwant %+v, malformed %v", line, got, reason, want, malformed)
		}
	})
}
