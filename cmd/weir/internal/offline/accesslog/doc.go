// Package accesslog reads the access logs of HTTP servers and proxies as a
// stream of request records.
//
// # Formats
//
// The format is detected for every line on its own, so a stream may mix them.
// A line whose first byte (after spaces and tabs) is '{' is a JSON object, any
// other line is text.
//
// Text is the NCSA common or combined log format:
//
//	host ident user [time] "request" status bytes
//	host ident user [time] "request" status bytes "referer" "user agent"
//
// with these variations. Fields that follow are ignored. A virtual host may
// stand before the client ("www.example.com:443 192.0.2.1 - - [...]"); it is
// recognised by its port, or because the client after it is an address. The
// user may hold spaces, brackets and escaped quotes; the time is the last
// bracket before the request. Inside quotes the escapes \", \\, \n, \r, \t, \v,
// \b, \f and \xHH are undone; any other backslash stands for itself. A "-" is a
// missing value. The referer or the user agent may lack its closing quote, as
// in a line that a full disk or a length limit cut; the rest of the line is then
// its value, because everything that identifies the request stands before it.
//
// The members of a JSON line that count are those of one list of names. They
// follow the usual JSON logs of nginx, Caddy, Traefik, Envoy and Logstash. A
// line of JSON must be one complete object, at most 64 levels deep.
//
// # Time
//
// A time is one of
//
//	17/May/2015:10:05:03 +0000            the time of the NCSA formats
//	2015-05-17T10:05:03.123456789Z        RFC 3339
//	2015-05-17 10:05:03,123 +0200         and its usual variations
//	1431857103.123                        time since the epoch
//
// The variations of RFC 3339 are '/' between the parts of the date, a space or
// 't' for 'T', a comma for the decimal point, an offset without its colon or
// with a space before it, and no offset at all, which is read as UTC. Both
// written forms may have a fraction of a second of any length; digits after the
// ninth are dropped.
//
// A number counts seconds, milliseconds, microseconds or nanoseconds since the
// epoch, told apart by magnitude: the first from 1e8, the second from 1e11, the
// third from 1e14, the last from 1e17 on. Each covers 1973 to the year 5138,
// and a smaller number, such as a duration, is not taken for a time.
//
// Every part is validated: month names as written by servers ("May"), days
// that the month of that year has, hours to 23, minutes to 59, offsets to 14
// hours on either side, years from 1970 to 2261. The leap second 23:59:60 UTC,
// with whatever offset it is written, is the first second of the next day, as it
// is in POSIX time; second 60 at any other instant is refused.
//
// # Order
//
// Servers write a line when the response ends. Some, such as Apache, stamp it
// with the time at which the request began, and several workers may share a
// file, so times that go backwards are normal. The reader reports what stands
// there, in the order of the lines. A caller that needs ascending times must sort
// or clamp.
//
// # Hostile input
//
// No input makes the reader fail: only an error of the underlying reader does.
// A line that is not a request record is counted as malformed and skipped. The
// memory in use is bounded by a small multiple of the longest accepted line,
// 1 MiB.
package accesslog
