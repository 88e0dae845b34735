package front

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// Kind is a front that a command offers by a flag. The harness adds the flags for its address, connections and silent clients,
// listens, speaks TLS, shows its state, and ends it.
type Kind struct {
	// Name is that of the flag of its address, and the beginning of all its other flags unless they are Bare.
	Name string
	Bare bool
	// Default is where it listens unless the flag says otherwise. Default: "", it is offered only if the flag is given.
	Default string
	// Usual is an address that works, and Usage says what the front is for: "address for clients that ...".
	Usual, Usage string
	// Silent says in the help of the idle timeout what clients do: "may be silent". Default: "", there is no such flag.
	Silent string
	// Connections is how many there may be at a time by default, and Bounded says in the help which ones count. Default: 0, there
	// are no flags for it; "--" and the Name.
	Connections int
	Bounded     string
	// Register adds the flags of this front alone. Default: nil, there are none.
	Register func(fs *pflag.FlagSet)
	// Check finds flags of it that do not go together, and reads their files. It is called whether the front is offered or not.
	// Default: nil.
	Check func(fs *pflag.FlagSet) error
	// New makes the front. Required.
	New func(Shared) (Made, error)
	// Unguarded reports what to do where clients on other machines reach the front and none has to say who it is; "" if they
	// have to. Default: nil, nothing is said.
	Unguarded func() string
}

// Shared is what all fronts of a server have in common, and what the flags of a kind say.
type Shared struct {
	Limits *live.Limits
	Holds  *holds.Holds
	// Descriptors is the configuration of envoyproxy/ratelimit in force. It is nil if the server has none, and returns nil while
	// none is in force.
	Descriptors func() *ratelimitconfig.Config
	// Alone reports whether no other server shares its durable limits.
	Alone bool
	// TLS is the configuration for protocols of ALPN, nil if the server speaks no TLS.
	TLS func(protocols ...string) *tls.Config
	// Traced puts the trace that requests belong to into their contexts.
	Traced func(http.Handler) http.Handler
	Log    *slog.Logger

	// Address is where the front listens.
	Address                               net.Addr
	MaxConnections, ConnectionsPerAddress int
	IdleTimeout                           time.Duration
}

// Bound is that of the connections of the front.
func (s *Shared) Bound() *Bounded {
	return NewBounded(s.MaxConnections, OfOne(s.MaxConnections, s.ConnectionsPerAddress), s.Log)
}

// Made is a front that was made.
type Made struct {
	Front Front
	// Status has what the state of the server says of the front, by name.
	Status map[string]func() any
	// Told is what the log says of it when it serves, in pairs of names and values. Default: nil, its address by its name.
	Told []any
	// Total is what the log says when it has ended, likewise. Default: nil, nothing.
	Total func() []any
	// Close ends what is left when the front has ended. Default: nil.
	Close func()
}

// Offer is a kind with what its flags say.
type Offer struct {
	*Kind

	// Address is that of the flag, "" if the front is not offered.
	Address string
	Bound   Connections
	Idle    time.Duration
}

// longestIdleTimeout is how long a flag may let clients be silent.
const longestIdleTimeout = 24 * time.Hour

// RegisterAddress adds the flag by which the front is offered.
func (o *Offer) RegisterAddress(fs *pflag.FlagSet) {
	o.Address = o.Default
	usage := o.Usage + "; port 0 is any that is free, and is printed"
	if o.Address == "" {
		usage = o.Usage + ", such as " + o.Usual + " (default: none)"
	}
	fs.Var(flags.Listen(&o.Address), o.Name, usage)
}

// prefix begins the names of the other flags.
func (o *Offer) prefix() string {
	if o.Bare {
		return ""
	}
	return o.Name + "-"
}

// RegisterRest adds the other flags of the front.
func (o *Offer) RegisterRest(fs *pflag.FlagSet) {
	if o.Connections > 0 {
		o.Bound.register(fs, o.prefix(), cmp.Or(o.Bounded, "--"+o.Name), o.Connections)
	}
	if o.Silent != "" {
		fs.Var(flags.Duration(&o.Idle, 0, longestIdleTimeout), o.prefix()+"idle-timeout",
			"how long clients of --"+o.Name+" "+o.Silent+", from 0s, which is forever, to 24h")
	}
	if o.Register != nil {
		o.Register(fs)
	}
}

// CheckFlags finds flags of the front that do not go together, or are given although it is not offered.
func (o *Offer) CheckFlags(fs *pflag.FlagSet) error {
	var given []string
	fs.Visit(func(f *pflag.Flag) {
		if !o.Bare && strings.HasPrefix(f.Name, o.prefix()) {
			given = append(given, f.Name)
		}
	})
	if o.Address == "" && len(given) > 0 {
		return flags.Errorf("--%s needs --%s", slices.Min(given), o.Name)
	}
	if o.Check == nil {
		return nil
	}
	return o.Check(fs)
}

// Connections are the flags for how many connections a front may have, and how many of them one address.
type Connections struct{ Most, OfOne int }

const mostConnections = 1_000_000

func (c *Connections) register(fs *pflag.FlagSet, prefix, of string, usual int) {
	c.Most = usual
	fs.Var(flags.Int(&c.Most, 1, mostConnections), prefix+"connections",
		"connections of "+of+" at a time, from 1 to 1000000;\nwhen there are as many, one that is idle makes room")
	fs.Var(flags.Int(&c.OfOne, 0, mostConnections), prefix+"connections-per-address",
		"how many of these one address may have, or one /64 of IPv6; 0 is nine in ten,\nwhich leaves some to others and does "+
			"not hold back a proxy in front")
}
