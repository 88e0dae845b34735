package rlsapi

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/ratelimitfields"
)

// What --grpc-headers may be.
const (
	headersNone   = "none"
	headersIETF   = "ietf"
	headersLegacy = "legacy"

	longestHeaderNames = 300
	maxAge             = 24 * time.Hour
)

// kind are the flags of the front.
type kind struct {
	headers string // "" where the flag is not given
	names   string
	age     time.Duration
}

// Kind is the front as weir serve offers it, with the rate limit quota service.
func Kind() *front.Kind {
	k := kind{names: "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"}
	return &front.Kind{
		Name: "grpc", Usual: "127.0.0.1:8081",
		Usage:  "address of the rate limit services of Envoy and of their health checks",
		Silent: "may have no call in flight", Connections: defaultConnections,
		Register: k.register, Check: k.check, New: k.make,
	}
}

func (k *kind) register(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&k.headers, headersNone, headersIETF, headersLegacy), "grpc-headers",
		"header fields that a proxy is told to add to responses: RateLimit and\nRateLimit-Policy, which name policies to "+
			"clients, or those of\n--grpc-header-names, which do not (default: ietf, or none with\n--ratelimit-config)")
	fs.Var(flags.Text(&k.names, len("a,b,c"), longestHeaderNames), "grpc-header-names",
		"names of the fields of --grpc-headers legacy, for the limit, what remains\nof it, and the seconds until all is back")
	fs.Var(flags.Duration(&k.age, 0, maxAge), "grpc-max-age",
		"how long clients of --grpc may be connected before they are told to connect\nagain, a tenth more or less, which "+
			"spreads them over servers; from 0s,\nwhich is forever, to 24h")
}

// check finds flags that do not go together.
func (k *kind) check(fs *pflag.FlagSet) error {
	names := strings.Split(k.names, ",")
	if len(names) != 3 || slices.ContainsFunc(names, func(name string) bool { return !httpguts.ValidHeaderFieldName(name) }) {
		return flags.Errorf("--grpc-header-names %q: must be three names of header fields with commas between", k.names)
	}
	if fs.Changed("grpc-header-names") && k.headers != headersLegacy {
		return flags.Errorf("--grpc-header-names needs --grpc-headers %s", headersLegacy)
	}
	return nil
}

// fields are the header fields of --grpc-headers. Policies of a configuration of envoyproxy/ratelimit are named after its
// descriptors, which clients are not told unless that is asked for.
func (k *kind) fields(descriptors bool) (fields ratelimitfields.Fields, names []string) {
	switch {
	case k.headers == headersLegacy:
		return ratelimitfields.NoFields, strings.Split(k.names, ",")
	case k.headers == headersNone, k.headers == "" && descriptors:
		return ratelimitfields.NoFields, nil
	}
	return ratelimitfields.RateLimit11, nil
}

func (k *kind) make(s front.Shared) (front.Made, error) {
	quotas := rlqsapi.New(rlqsapi.Options{Limits: s.Limits, Alone: s.Alone, Logger: s.Log})
	fields, names := k.fields(s.Descriptors != nil)
	server, err := New(Options{
		Limits: s.Limits, Tree: s.Descriptors, Quotas: quotas, Fields: fields, LimitFields: names,
		TLS: s.TLS("h2"), Logger: s.Log,
		MaxConnections: s.MaxConnections, ConnectionsPerAddress: s.ConnectionsPerAddress, IdleTimeout: s.IdleTimeout,
		MaxAge: k.age,
	})
	if err != nil {
		quotas.Close()
		return front.Made{}, err
	}
	return front.Made{Front: server, Close: quotas.Close, Status: map[string]func() any{
		"grpc": func() any { return server.Status() }, "rlqs": func() any { return quotas.Status() },
	}}, nil
}
