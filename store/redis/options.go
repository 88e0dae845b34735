package redis

import (
	"crypto/tls"
	"fmt"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// Options configure a [Store].
type Options struct {
	// URL is the server: redis://user:password@host:port/db, or rediss:// over TLS, or unix:///path?db=0. Add further servers of
	// a cluster, or further sentinels, by addr=host:port, as often as needed. master_set=name makes the servers sentinels, which
	// watch the set of that name. It excludes Addresses. Default: redis://127.0.0.1:6379, if Addresses is empty.
	URL string
	// Addresses are host:port of a server, of some servers of a cluster, or of sentinels.
	Addresses []string
	// MasterSet is the name of the set that the sentinels at Addresses watch. Default: "", no sentinels.
	MasterSet string
	// Username and Password are those of the servers. They replace those of URL, if they are not empty.
	Username, Password string
	// SentinelUsername and SentinelPassword are those of the sentinels. Default: none.
	SentinelUsername, SentinelPassword string
	// DB is the number of the database, from 0 to 2^16-1. A cluster has 0 only. It replaces that of URL, if it is not 0.
	DB int
	// TLS is how servers are reached over TLS: with RootCAs, for instance, if their certificates are of a private authority, or
	// Certificates, if they want one of the client. Default: nil, as in URL.
	TLS *tls.Config
	// Prefix begins the name of every key, at most 128 bytes without braces. Stores of the same prefix share their states.
	// Default: "weir:".
	Prefix string
	// Timeout is how long a call waits for the server, together with the deadline of its context: from 1 ms to 1 min. A call
	// about keys in several slots of a cluster is several of them in turn. Default: 100 ms.
	Timeout time.Duration
	// MaxInFlight is how many requests may be in flight, also those that were sent and whose callers have given up: from 1 to
	// 2^20. Others get ErrUnavailable at once. Default: 10,000.
	MaxInFlight int
	// Connections is how many connections to each server share the requests: 1, 2, 4 or 8. Default: 2.
	Connections int
}

const (
	defaultURL         = "redis://127.0.0.1:6379"
	defaultPrefix      = "weir:"
	defaultTimeout     = 100 * time.Millisecond
	defaultMaxInFlight = 10_000
	defaultConnections = 2
	maxDBs             = 1 << 16
)

// checked fills in the defaults, or returns an *[weir.OptionError].
func (o Options) checked() (Options, error) {
	wrong := func(option, value, accepted string) (Options, error) {
		return Options{}, &weir.OptionError{Option: "Options." + option, Value: value, Accepted: accepted}
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = defaultMaxInFlight
	}
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	if o.URL == "" && len(o.Addresses) == 0 {
		o.URL = defaultURL
	}
	switch {
	case o.URL != "" && len(o.Addresses) > 0:
		return wrong("Addresses", strings.Join(o.Addresses, ","), "empty where URL is given")
	case len(o.Prefix) > 128 || strings.ContainsAny(o.Prefix, "{}"):
		return wrong("Prefix", fmt.Sprintf("%.40q", o.Prefix), "at most 128 bytes without braces")
	case o.Timeout < time.Millisecond || o.Timeout > time.Minute:
		return wrong("Timeout", o.Timeout.String(), "from 1ms to 1m")
	case o.MaxInFlight < 1 || o.MaxInFlight > 1<<20:
		return wrong("MaxInFlight", fmt.Sprint(o.MaxInFlight), "from 1 to 1048576")
	case o.DB < 0 || o.DB >= maxDBs:
		return wrong("DB", fmt.Sprint(o.DB), "from 0 to 65535")
	case o.Connections < 1 || o.Connections > 8 || bits.OnesCount(uint(o.Connections)) != 1:
		return wrong("Connections", fmt.Sprint(o.Connections), "1, 2, 4 or 8")
	}
	return o, nil
}

// servers are those of checked options.
func (o Options) servers() (*servers, error) {
	s := &servers{addresses: o.Addresses}
	if i := slices.IndexFunc(o.Addresses, neverReached); i >= 0 {
		return nil, &weir.OptionError{
			Option: fmt.Sprintf("Options.Addresses[%d]", i), Value: fmt.Sprintf("%.80q", o.Addresses[i]),
			Accepted: "host:port, such as 127.0.0.1:6379",
		}
	}
	set := o.MasterSet
	if o.URL != "" {
		named, err := s.parse(o.URL)
		if err != nil {
			return nil, &weir.OptionError{
				Option: "Options.URL", Value: strconv.Quote(redacted(o.URL)),
				Accepted: "a URL such as redis://user:password@host:6379/0, with the number of a database if any, " +
					"rediss:// or valkey:// likewise, or unix:///path?db=0 (" + err.Error() + ")",
			}
		}
		if set == "" {
			set = named
		}
	}
	if o.Username != "" {
		s.login.Username = o.Username
	}
	if o.Password != "" {
		s.login.Password = o.Password
	}
	if o.DB != 0 {
		s.login.DB = o.DB
	}
	if o.TLS != nil {
		s.login.TLS = o.TLS
	}
	s.login.Name = "weir"
	if set != "" {
		s.sentinels = &sentinels{set: set, known: slices.Clone(s.addresses), login: s.login}
		l := &s.sentinels.login
		l.Username, l.Password, l.DB = o.SentinelUsername, o.SentinelPassword, 0
	}
	var err error
	s.dialer, err = newDialer(max(o.Timeout, time.Second))
	return s, err
}

// redacted is a URL without what must not be shown.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a text that cannot be parsed"
	}
	if unread(u) {
		u = &url.URL{Scheme: u.Scheme, Host: "xxxxx"}
	}
	return u.Redacted()
}
