package serve

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/internal/regularfile"
	"github.com/weirhq/weir/ratelimitfields"
)

const (
	defaultHTTP = "127.0.0.1:7070"
	usualRESP   = "127.0.0.1:6380"
	usualGRPC   = "127.0.0.1:8081"

	// The names of fronts, which are those of their flags.
	frontHTTP = "http"
	frontRESP = "resp"
	frontGRPC = "grpc"
)

// frontFlags say what is listened on, and how.
type frontFlags struct {
	http, resp, grpc string
	httpNames        []string
	tls              front.TLSFiles
	passwordFile     string
	throttleKeys     int
	httpBound        connectionBound
	respBound        connectionBound
	grpcBound        connectionBound
	respIdle         time.Duration
	grpcIdle         time.Duration
	grpcHeaders      string // "" where the flag is not given
	grpcHeaderNames  string
}

// connectionBound is how many connections a front may have, and how many of them one address.
type connectionBound struct{ most, ofOne int }

// register registers the flags of a front for it, of which is its name; also is what else has as many.
func (b *connectionBound) register(fs *pflag.FlagSet, of, also string, usual int) {
	b.most = usual
	fs.Var(flags.Int(&b.most, 1, mostConnections), of+"-connections",
		"connections of --"+of+" at a time"+also+", from 1 to 1000000;\nwhen there are as many, one that is idle makes room")
	fs.Var(flags.Int(&b.ofOne, 0, mostConnections), of+"-connections-per-address",
		"how many of these one address may have, or one /64 of IPv6; 0 is nine in ten,\nwhich leaves some to others and does "+
			"not hold back a proxy in front")
}

const (
	defaultConnections     = 10_000
	defaultGRPCConnections = 1_000
	mostConnections        = 1_000_000
	defaultThrottleKeys    = 1_000_000
	mostThrottleKeys       = 1 << 31
	longestIdleTimeout     = 24 * time.Hour
)

func (f *frontFlags) register(fs *pflag.FlagSet) {
	f.http, f.throttleKeys = defaultHTTP, defaultThrottleKeys
	fs.Var(flags.Listen(&f.http), "http", "address of the JSON API; port 0 is any that is free, and is printed")
	fs.Var(hostNames{&f.httpNames}, "http-names",
		"names of hosts, joined by commas, under which --http answers on a loopback address besides\nlocalhost and addresses; "+
			"on other addresses it answers under any name (default: none)")
	f.httpBound.register(fs, frontHTTP, ", and of --admin", defaultConnections)
	fs.Var(flags.Listen(&f.resp), "resp",
		"address for clients that speak to Redis, such as "+usualRESP+" (default: none)")
	fs.Var(flags.Listen(&f.grpc), "grpc",
		"address of the rate limit services of Envoy and of their health checks, such as "+usualGRPC+" (default: none)")
	fs.Var(flags.File(&f.tls.Certificate), "tls-cert",
		"certificate of all fronts in PEM, read again when it changes (default: none, they speak no TLS)")
	fs.Var(flags.File(&f.tls.Key), "tls-key", "private key of --tls-cert in PEM (default: none)")
	fs.Var(flags.File(&f.tls.ClientCA), "tls-client-ca",
		"authorities in PEM of which every client must have a certificate (default: none is needed)")
}

// registerRESP registers those of the RESP front alone.
func (f *frontFlags) registerRESP(fs *pflag.FlagSet) {
	fs.Var(flags.File(&f.passwordFile), "resp-password-file",
		"file with the password of 1 to 4096 characters that clients of --resp must give (default: none is needed)")
	f.respBound.register(fs, frontRESP, "", defaultConnections)
	fs.Var(flags.Duration(&f.respIdle, 0, longestIdleTimeout), "resp-idle-timeout",
		"how long clients of --resp may be silent, from 0s, which is forever, to 24h")
	fs.Var(flags.Int(&f.throttleKeys, 1, mostThrottleKeys), "resp-keys",
		"keys of CL.THROTTLE tracked at a time, from 1 to 2^31; when none of\nthem can be forgotten, new ones are refused")
}

// What --grpc-headers may be.
const (
	headersNone   = "none"
	headersIETF   = "ietf"
	headersLegacy = "legacy"

	longestHeaderNames = 300
)

// registerGRPC registers those of the gRPC front alone.
func (f *frontFlags) registerGRPC(fs *pflag.FlagSet) {
	f.grpcBound.register(fs, frontGRPC, "", defaultGRPCConnections)
	fs.Var(flags.OneOf(&f.grpcHeaders, headersNone, headersIETF, headersLegacy), "grpc-headers",
		"header fields that a proxy is told to add to responses: RateLimit and\nRateLimit-Policy, which name policies to "+
			"clients, or those of\n--grpc-header-names, which do not (default: ietf, or none with\n--ratelimit-config)")
	f.grpcHeaderNames = "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"
	fs.Var(flags.Text(&f.grpcHeaderNames, len("a,b,c"), longestHeaderNames), "grpc-header-names",
		"names of the fields of --grpc-headers legacy, for the limit, what remains\nof it, and the seconds until all is back")
	fs.Var(flags.Duration(&f.grpcIdle, 0, longestIdleTimeout), "grpc-idle-timeout",
		"how long clients of --grpc may have no call in flight, from 0s, which is\nforever, to 24h")
}

// check finds flags that do not go together.
func (f *frontFlags) check(fs *pflag.FlagSet) error {
	for _, of := range []struct {
		front, address string
		flags          []string
	}{
		{frontRESP, f.resp, []string{"password-file", "connections", "connections-per-address", "idle-timeout", "keys"}},
		{frontGRPC, f.grpc, []string{"connections", "connections-per-address", "idle-timeout", "headers", "header-names"}},
	} {
		for _, name := range of.flags {
			if name = of.front + "-" + name; of.address == "" && fs.Changed(name) {
				return flags.Errorf("--%s needs --%s", name, of.front)
			}
		}
	}
	names := strings.Split(f.grpcHeaderNames, ",")
	if len(names) != 3 || slices.ContainsFunc(names, func(name string) bool { return !httpguts.ValidHeaderFieldName(name) }) {
		return flags.Errorf("--grpc-header-names %q: must be three names of header fields with commas between",
			f.grpcHeaderNames)
	}
	if fs.Changed("grpc-header-names") && f.grpcHeaders != headersLegacy {
		return flags.Errorf("--grpc-header-names needs --grpc-headers %s", headersLegacy)
	}
	switch {
	case f.tls.Certificate == "" && f.tls.Key != "":
		return flags.Errorf("--tls-key needs --tls-cert")
	case f.tls.Certificate != "" && f.tls.Key == "":
		return flags.Errorf("--tls-cert needs --tls-key, which may be the same file")
	case f.tls.Certificate == "" && f.tls.ClientCA != "":
		return flags.Errorf("--tls-client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// apart finds two fronts with one address.
func (o *options) apart() error {
	names := [...]string{frontHTTP, frontRESP, frontGRPC, "admin"}
	for i, name := range names {
		for _, other := range names[:i] {
			if a := o.address(name); a != "" && a == o.address(other) && !front.IsAnyPort(a) {
				return flags.Errorf("--%s %q: is the address of --%s as well: each front needs a port of its own",
					name, a, other)
			}
		}
	}
	return nil
}

// address is that of a front.
func (o *options) address(name string) string {
	switch name {
	case frontRESP:
		return o.fronts.resp
	case frontGRPC:
		return o.fronts.grpc
	case "admin":
		return o.admin.address
	}
	return o.fronts.http
}

// certificates are for the servers of protocols: nil if they speak no TLS.
type certificates struct{ *front.Certificates }

// of are those of a server that has no admin pages.
func (c certificates) of(protocols ...string) *tls.Config {
	if c.Certificates == nil {
		return nil
	}
	return c.Config(protocols...)
}

// ofAdmin are those of a server that has admin pages.
func (c certificates) ofAdmin(protocols ...string) *tls.Config {
	if c.Certificates == nil {
		return nil
	}
	return c.AdminConfig(protocols...)
}

// certificates reads those of the flags.
func (f *frontFlags) certificates(adminCA string, log *slog.Logger) (certificates, error) {
	if f.tls.Certificate == "" {
		return certificates{}, nil
	}
	files := f.tls
	files.AdminCA = adminCA
	c, err := front.LoadCertificates(files, log)
	if err != nil {
		return certificates{}, flags.Inputf("%s", err)
	}
	return certificates{c}, nil
}

// longestPassword is how long a password may be.
const longestPassword = 4096

// password reads that of RESP: "" if there is none.
func (f *frontFlags) password() (string, error) {
	if f.passwordFile == "" {
		return "", nil
	}
	text, err := regularfile.Read(f.passwordFile, longestPassword+2)
	if err != nil {
		return "", flags.Inputf("weir: --resp-password-file: %s", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 || len(text) > longestPassword {
		return "", flags.Inputf("weir: --resp-password-file: %s has %d bytes: must have from 1 to %d",
			f.passwordFile, len(text), longestPassword)
	}
	return string(text), nil
}

// secrets are what the files of flags have.
type secrets struct {
	tokens       *adminguard.TokenFile
	password     string
	certificates certificates
}

// secrets reads them.
func (o *options) secrets(log *slog.Logger) (s secrets, err error) {
	if s.tokens, err = o.admin.tokens(log); err != nil {
		return s, err
	}
	if s.password, err = o.fronts.password(); err != nil {
		return s, err
	}
	s.certificates, err = o.fronts.certificates(o.admin.clientCA, log)
	return s, err
}

// grpcFields are the header fields of --grpc-headers. Policies of a configuration of envoyproxy/ratelimit are named after its
// descriptors, which it tells clients nothing of unless it is asked to.
func (f *frontFlags) grpcFields(descriptors bool) (fields ratelimitfields.Fields, names []string) {
	switch {
	case f.grpcHeaders == headersLegacy:
		return ratelimitfields.NoFields, strings.Split(f.grpcHeaderNames, ",")
	case f.grpcHeaders == headersNone, f.grpcHeaders == "" && descriptors:
		return ratelimitfields.NoFields, nil
	}
	return ratelimitfields.RateLimit11, nil
}
