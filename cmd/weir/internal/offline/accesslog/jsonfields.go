package accesslog

import "strings"

// field lists the names under which the members of a JSON line hold one part of
// a record.
type field struct {
	// of is the part of the record.
	of string

	// names are the names in order of preference: when a line has several of
	// them, the first that has a value counts. A dot leads into a nested object.
	names []string
}

// quantity is an index into jsonFields.
type quantity uint8

const (
	timeField quantity = iota
	clientField
	methodField
	requestField
	targetField
	queryField
	hostField
	statusField
	sizeField
	refererField
	userAgentField
	quantities
)

// maxNames is the limit of names of one quantity.
const maxNames = 12

// jsonFields are the names of the members of a JSON line that the reader knows,
// which are all it knows: other members are skipped, and names are compared
// exactly. A line must have a time, and at least one of client, method and
// request target.
//
// Times, status and size may be numbers or strings, all else must be a string; a
// value of another type, or one that is not a time, status or size, is as if it
// were absent. Of a value that is an array, the first element counts. Of a name
// that occurs twice in an object, the last counts.
//
// A header such as X-Forwarded-For is not in the list: it is a claim of the
// client until the server has checked it, and the servers that do so log the
// result under a name of the list.
var jsonFields = [quantities]field{
	// The start of a request comes before the time a line was written.
	timeField: {"time", []string{
		"StartUTC", "StartLocal", // Traefik
		"start_time",           // Envoy
		"ts",                   // Caddy
		"msec", "time_iso8601", // nginx
		"time_local",        // nginx
		"@timestamp",        // Logstash
		"timestamp", "time", // Traefik, and general
	}},
	// What the server takes for the client comes before the other end of the
	// connection, which may be a proxy.
	clientField: {"client", []string{
		"request.client_ip", "request.remote_ip", "request.remote_addr", // Caddy
		"client_ip", "remote_ip",
		"ClientHost", "ClientAddr", // Traefik
		"remote_addr",               // nginx
		"downstream_remote_address", // Envoy
		"clientip",                  // Logstash
		"remote_host", "remote",
	}},
	methodField: {"method", []string{
		"request.method", "request_method", "RequestMethod", "method", "verb",
	}},
	// These hold a whole request line ("GET /path HTTP/1.1") or, from Logstash,
	// its target alone.
	requestField: {"request line", []string{"request", "RequestLine"}},
	targetField: {"path or URL", []string{
		"request.uri", "request_uri", "RequestPath",
		"x-envoy-origin-path", // Envoy Gateway
		"path", "uri", "url",
	}},
	queryField: {"query", []string{"query_string", "args", "query"}},
	hostField: {"host", []string{
		"request.host", "RequestHost", "authority", ":authority", "http_host", "host", "vhost", "server_name",
	}},
	statusField: {"status", []string{
		"status", "response_code", "DownstreamStatus", "OriginStatus", "status_code", "response",
	}},
	sizeField: {"bytes", []string{
		"size", "body_bytes_sent", "bytes_sent", "DownstreamContentSize", "bytes",
	}},
	refererField: {"referer", []string{
		"request.headers.Referer", "http_referer", "request_Referer", "referer", "referrer",
	}},
	userAgentField: {"user agent", []string{
		"request.headers.User-Agent", "http_user_agent", "request_User-Agent", "user_agent", "user-agent", "agent",
	}},
}

// acceptsNumber tells the quantities that a JSON number can give.
var acceptsNumber = [quantities]bool{timeField: true, statusField: true, sizeField: true}

// object is what is known of the names of a JSON object.
type object struct {
	names map[string]name

	// below has, for each quantity, the bits of all names in this object and the
	// objects in it.
	below [quantities]uint16
}

// name is what a known name holds: a quantity, an object, or either.
type name struct {
	quantity quantity
	rank     uint8
	holds    bool // a quantity; quantity and rank are set
	object   *object
}

// topLevel is jsonFields turned into a tree.
var topLevel = func() *object {
	top := &object{names: map[string]name{}}
	for q, f := range jsonFields {
		for rank, path := range f.names {
			o := top
			o.below[q] |= 1 << rank
			for {
				first, rest, nested := strings.Cut(path, ".")
				n := o.names[first]
				if !nested {
					n.quantity, n.rank, n.holds = quantity(q), uint8(rank), true
					o.names[first] = n
					break
				}
				if n.object == nil {
					n.object = &object{names: map[string]name{}}
					o.names[first] = n
				}
				o, path = n.object, rest
				o.below[q] |= 1 << rank
			}
		}
	}
	return top
}()
