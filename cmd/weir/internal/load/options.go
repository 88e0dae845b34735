package load

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// The fronts.
const (
	frontHTTP = "http"
	frontRESP = "resp"
	frontRLS  = "rls"
)

// options are the flags of a subcommand.
type options struct {
	front        string
	address      string
	tls          tlsOptions
	passwordFile string

	policy      string
	cost        int64
	limit       throttle
	command     command
	domain      string
	descriptors descriptors

	connections  int
	inFlight     int     // 0: not given
	rate         float64 // a second, 0: not given
	arrivals     string
	keys         int64
	keyPrefix    string
	distribution string
	zipfS        float64
	seed         int64

	duration time.Duration
	requests int64 // 0: not given
	warmup   time.Duration
	timeout  time.Duration
	json     bool
	progress bool
}

type tlsOptions struct {
	on       bool
	ca       string
	insecure bool
}

const (
	longestName     = 256
	longestPrefix   = 64
	mostCost        = algo.MaxPermits
	mostHits        = math.MaxUint32
	mostConnections = 10_000
	mostInFlight    = 1000
	mostKeys        = 1_000_000_000
	mostRequests    = 1_000_000_000_000

	usualOpen = 256 // in flight on each connection of an open loop
)

func (o *options) registerServer(fs *pflag.FlagSet) {
	fs.Var(server(&o.address), "address", "where the server listens")
	fs.BoolVar(&o.tls.on, "tls", false, "speak TLS")
	fs.Var(flags.File(&o.tls.ca), "tls-ca",
		"file with the certificates in PEM of who may have signed that of the server\n(default: those of the system)")
	fs.BoolVar(&o.tls.insecure, "tls-insecure", false, "do not verify the certificate of the server, for tests alone")
}

// registerLoad adds the flags that all fronts have. inFlight is the name of that for the requests in flight on each connection,
// if the front has it.
func (o *options) registerLoad(fs *pflag.FlagSet, inFlight string) {
	o.connections, o.arrivals, o.distribution, o.zipfS = 50, fixed, uniform, 0.99
	o.keys, o.keyPrefix, o.seed = 10_000, "key:", 1
	o.duration, o.warmup, o.timeout = 10*time.Second, time.Second, 10*time.Second
	if o.front == frontRLS {
		o.connections = 4
	}
	fs.Var(flags.Int(&o.connections, 1, mostConnections), "connections", "connections, from 1 to 10000")
	switch inFlight {
	case "pipeline":
		fs.Var(flags.Some(&o.inFlight, 1, mostInFlight), inFlight,
			"commands that each connection sends at once, from 1 to 1000; with --rate the most\n"+
				"that it may wait for (default: 1, with --rate 256)")
	case "in-flight":
		fs.Var(flags.Some(&o.inFlight, 1, mostInFlight), inFlight,
			"requests in flight on each connection, from 1 to 1000; with --rate the most\n"+
				"(default: 32, with --rate 256)")
	}
	fs.Var(perSecond(&o.rate), "rate",
		"send at this rate, all connections together, whether or not the server keeps up\n(default: none, a closed loop)")
	fs.Var(flags.OneOf(&o.arrivals, fixed, poisson), "arrivals",
		"times of requests with --rate: at fixed intervals, or at random as of many users")
	fs.Var(flags.Int(&o.keys, 1, mostKeys), "keys", "number of different keys, from 1 to 10^9")
	fs.Var(flags.TextOf("text", &o.keyPrefix, word{longest: longestPrefix, noQuotes: true}.parse), "key-prefix",
		"what stands before the number of each key")
	fs.Var(flags.OneOf(&o.distribution, uniform, zipf), "distribution",
		"how often each key comes: all alike, or some far more often than others")
	fs.Var(exponent(&o.zipfS), "zipf-s",
		"how much more often with zipf: key number k comes in proportion to 1/(k+1)^s,\nwith s from 0.01 to 10")
	fs.Var(flags.Int(&o.seed, 0, math.MaxInt64), "seed",
		"start of all that is random; the same one makes the same keys and times")
	fs.Var(flags.Duration(&o.duration, 10*time.Millisecond, 24*time.Hour), "duration",
		"how long to measure, after --warmup, from 10ms to 24h")
	fs.Var(flags.Some(&o.requests, 1, mostRequests), "requests",
		"how many requests to measure instead, from 1 to 10^12 (default: none)")
	fs.Var(flags.Duration(&o.warmup, 0, time.Hour), "warmup",
		"how long to send requests that are not counted before, from 0s to 1h")
	fs.Var(flags.Duration(&o.timeout, time.Millisecond, time.Hour), "timeout",
		"how long to wait for an answer, or for a connection, from 1ms to 1h")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	fs.BoolVar(&o.progress, "progress", false, "tell every second how it goes, also if standard error is no terminal")
}

// check looks for flags that do not go together, and chooses what was not given.
func (o *options) check(fs *pflag.FlagSet) error {
	for _, c := range []struct {
		flag, needs string
		there       bool
	}{
		{"arrivals", "--rate", o.rate > 0},
		{"zipf-s", "--distribution zipf", o.distribution == zipf},
		{"tls-ca", "--tls", o.tls.on},
		{"tls-insecure", "--tls", o.tls.on},
	} {
		if fs.Changed(c.flag) && !c.there {
			return flags.Errorf("--%s needs %s", c.flag, c.needs)
		}
	}
	if fs.Changed("requests") && fs.Changed("duration") {
		return flags.Errorf("--requests cannot be combined with --duration: give one of them")
	}
	if o.tls.ca != "" && o.tls.insecure {
		return flags.Errorf("--tls-ca cannot be combined with --tls-insecure, which verifies nothing")
	}
	if o.inFlight == 0 {
		switch {
		case o.rate > 0:
			o.inFlight = usualOpen
		case o.front == frontRLS:
			o.inFlight = 32
		default:
			o.inFlight = 1
		}
	}
	return nil
}
