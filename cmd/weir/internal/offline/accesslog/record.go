package accesslog

import "net/netip"

// Record is one request as the log tells it.
//
// Every byte slice points into memory of the [Reader] and is valid until the
// next call of [Reader.Next]; copy what must live longer. A field for which the
// line has no value (absent, empty, "-" or, in JSON, null) is an empty slice or
// the zero value of its type.
type Record struct {
	// Time is the instant of the request in nanoseconds since the Unix epoch.
	// It is always set, and it may be earlier than that of the record before:
	// logs are written in the order in which requests end. Whether it is the
	// start or the end of the request is up to the server.
	Time int64

	// Client is the address of the client. An IPv4-mapped IPv6 address is
	// reported as the IPv4 address, and a port written with the address is
	// dropped. It is the zero Addr when the log names the client otherwise, or
	// not at all.
	Client netip.Addr

	// ClientName is what stands in place of the client's address when that is
	// not an address: a resolved host name, or "unix:". It is empty when
	// Client is valid.
	ClientName []byte

	// Host is the host the request was made to, without its port: the virtual
	// host before a text line, the host of an absolute request target, or the
	// member of a JSON line. The common and combined formats do not log it.
	Host []byte

	// Method is the request method as logged, normally in capitals. It is
	// empty when the request line is not HTTP, such as the first bytes of a TLS
	// handshake sent to a plain port; the line is a record all the same, since
	// the server answered it.
	Method []byte

	// Path is the path of the request target, without the query. Escapes of the
	// log format are undone, percent-encoding is not.
	Path []byte

	// Query is the part of the request target after the first '?', not decoded.
	Query []byte

	// Status is the status code, 100 to 999, or 0 when the log has none ("-",
	// "000" or 0, which servers write for a connection that ended early).
	Status int

	// Bytes is the size of the response in bytes, 0 when none is logged. Whether
	// headers count is up to the server's format.
	Bytes int64

	// Referer is the Referer header of the request.
	Referer []byte

	// UserAgent is the User-Agent header of the request.
	UserAgent []byte

	// Line is the number of the line in the stream, from 1.
	Line int
}
