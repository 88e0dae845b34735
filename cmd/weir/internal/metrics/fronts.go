package metrics

import (
	"reflect"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
)

// told is a number of what a front tells of itself, at a path of names, with the values of labels.
type told struct {
	path   []string
	labels []string
}

// number is the number at a path of maps, and whether there is one.
func number(status any, path []string) (float64, bool) {
	for _, name := range path {
		m := reflect.ValueOf(status)
		if m.Kind() != reflect.Map || m.Type().Key().Kind() != reflect.String {
			return 0, false
		}
		v := m.MapIndex(reflect.ValueOf(name))
		if !v.IsValid() {
			return 0, false
		}
		status = v.Interface()
	}
	switch v := reflect.ValueOf(status); {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	default:
		return 0, false
	}
}

// numbers is for a metric of what fronts tell, as far as there are such fronts.
func numbers(all ...told) func(*snapshot, emitter) {
	return func(n *snapshot, emit emitter) {
		for _, t := range all {
			if v, ok := number(n.status, t.path); ok {
				emit(v, t.labels...)
			}
		}
	}
}

// one is a metric without labels: a number of a front.
func one(name string, kind prometheus.ValueType, help string, path ...string) family {
	return family{name: name, kind: kind, help: help, each: numbers(told{path: path})}
}

// calls are those of a method of the rate limit service, by what they were answered.
func calls(method string) []told {
	all := make([]told, 0, 3)
	for _, answer := range []string{"ok", "over_limit", "failed"} {
		all = append(all, told{[]string{frontGRPC, method, answer}, []string{method, answer}})
	}
	return all
}

// ofEach is a number of each front.
func ofEach(name string) []told {
	return of(name, frontHTTP, frontAdmin, frontRESP, frontGRPC, frontProxy)
}

// of is a number of some fronts.
func of(name string, fronts ...string) []told {
	all := make([]told, len(fronts))
	for i, front := range fronts {
		all[i] = told{[]string{front, name}, []string{front}}
	}
	return all
}

// requests are those of the proxy, by what became of them.
func requests() []told {
	results := []string{"allowed", "refused", "over_concurrency", "rejected"}
	all := make([]told, len(results))
	for i, became := range results {
		all[i] = told{[]string{frontProxy, "requests", became}, []string{became}}
	}
	return all
}

// The fronts of which several numbers are told, by their names, and a label that many metrics have.
const (
	frontHTTP  = "http"
	frontAdmin = "admin"
	frontRESP  = "resp"
	frontGRPC  = "grpc"
	frontProxy = "proxy"
	result     = "result"

	// How many connections a front has open, has had no room for, and has closed to make room.
	connections        = "connections"
	refusedConnections = "connections_refused"
	evictedConnections = "connections_evicted"
	// How many requests of HTTP/2 a front has had no room for.
	refusedRequests = "requests_refused"
)

var byFront = []string{"front"}

// ofFronts are the metrics of fronts.
var ofFronts = []family{
	{
		name: "weir_front_connections", kind: gauge, labels: byFront,
		help: "Open connections of each front: http, admin (with a listener of its own), resp, grpc and proxy.",
		each: numbers(ofEach(connections)...),
	},
	{
		name: "weir_front_connections_refused_total", kind: counter, labels: byFront,
		help: "Connections that were refused because there were too many.",
		each: numbers(ofEach(refusedConnections)...),
	},
	{
		name: "weir_front_connections_evicted_total", kind: counter, labels: byFront,
		help: "Idle connections that were closed to make room for others.",
		each: numbers(ofEach(evictedConnections)...),
	},
	{
		name: "weir_front_requests_refused_total", kind: counter, labels: byFront,
		help: "Requests of HTTP/2 that were refused because their connections had too many at a time.",
		each: numbers(of(refusedRequests, frontHTTP, frontAdmin, frontProxy)...),
	},
	one("weir_resp_connections_total", counter, "Connections of clients that speak to Redis.", frontRESP, "connections_total"),
	one("weir_resp_commands_total", counter, "Commands of RESP that were answered.", frontRESP, "commands"),
	one("weir_resp_protocol_errors_total", counter,
		"Connections of RESP that ended because the client broke the protocol.", frontRESP, "protocol_errors"),
	one("weir_resp_timeouts_total", counter,
		"Connections of RESP that ended because the client was silent too long.", frontRESP, "timeouts"),
	one("weir_resp_wrong_passwords_total", counter, "Wrong passwords of RESP.", frontRESP, "wrong_passwords"),
	{
		name: "weir_resp_throttle_requests_total", kind: counter, labels: []string{result},
		help: "Requests of CL.THROTTLE and its like: allowed or refused.",
		each: numbers(
			told{[]string{frontRESP, "throttle", "allowed"}, []string{"allowed"}},
			told{[]string{frontRESP, "throttle", "refused"}, []string{"refused"}},
		),
	},
	one("weir_resp_throttle_keys", gauge, "Keys of CL.THROTTLE that are tracked.", frontRESP, "throttle", "keys"),
	one("weir_resp_throttle_max_keys", gauge, "Keys of CL.THROTTLE that may be tracked.", frontRESP, "throttle", "max_keys"),
	{
		name: "weir_grpc_calls_total", kind: counter, labels: []string{"method", result},
		help: "Calls of the rate limit services of Envoy: ok, over_limit, or failed.",
		each: numbers(append(append(calls("should_rate_limit"), calls("check_rate_limit")...), calls("report")...)...),
	},
	one("weir_grpc_connections_cut_off_total", counter,
		"Connections of gRPC that were cut off, as they kept too much, took too long or asked nothing too often.",
		frontGRPC, "connections_cut_off"),
	one("weir_grpc_arriving_bytes", gauge,
		"Bytes of gRPC messages that are unfinished, of headers of calls in flight, and of replies that are not taken.",
		frontGRPC, "arriving_bytes"),
	one("weir_rlqs_streams", gauge, "Open streams of the rate limit quota service of Envoy.", "rlqs", "streams"),
	one("weir_rlqs_buckets", gauge, "Buckets that these streams have.", "rlqs", "buckets"),
	one("weir_rlqs_reports_total", counter, "Reports of the use of buckets.", "rlqs", "reports"),
	one("weir_rlqs_protocol_errors_total", counter,
		"Streams of the rate limit quota service that broke the protocol.", "rlqs", "protocol_errors"),
	{
		name: "weir_forward_auth_requests_total", kind: counter, labels: []string{result},
		help: "Requests of forward auth: allowed, refused, or rejected as undecidable.",
		each: func(n *snapshot, emit emitter) {
			if c, ok := n.status["forward_auth"].(forwardauth.Counts); ok {
				emit(float64(c.Passed), "allowed")
				emit(float64(c.Refused), "refused")
				emit(float64(c.Rejected), "rejected")
			}
		},
	},
	{
		name: "weir_proxy_requests_total", kind: counter, labels: []string{result},
		help: "Requests of the proxy: allowed (passed on), refused, over_concurrency or rejected as invalid.",
		each: numbers(requests()...),
	},
	one("weir_proxy_upstream_errors_total", counter,
		"Requests that were passed on and that the service did not answer, or not wholly.", frontProxy, "upstream_errors"),
	one("weir_proxy_aborted_total", counter, "Requests of the proxy whose clients went away.", frontProxy, "aborted"),
	one("weir_proxy_in_flight", gauge,
		"Requests of the proxy in flight, upgraded connections included.", frontProxy, "in_flight"),
	one("weir_proxy_upgraded", gauge,
		"Connections of the proxy that have left HTTP, such as WebSockets.", frontProxy, "upgraded"),
	one("weir_proxy_waiting", gauge, "Requests that wait for a place of --concurrency.", frontProxy, "waiting"),
}
