package serve

import (
	"crypto/tls"
	"maps"
	"net/netip"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/dashboard"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/ratelimitfields"
)

// The fronts of HTTP by their names, and where they listen by default or usually.
const (
	frontHTTP  = "http"
	frontAdmin = "admin"
	frontProxy = "listen"

	defaultHTTP = "127.0.0.1:7070"
	usualAdmin  = "127.0.0.1:7071"

	defaultConnections = 10_000
)

// What --auth-headers may be.
const (
	headersNone = "none"
	headersIETF = "ietf"
)

// httpFlags are those of the JSON API, and of proxies that ask about requests of others.
type httpFlags struct {
	names       []string
	trusted     []netip.Prefix
	authStatus  int // 0 where the flag is not given
	authHeaders string
}

const defaultAuthStatus = 429

// httpKind is the front of the JSON API, and of the admin pages unless they have one of their own. It listens on address by
// default, or not at all if that is "".
func (o *options) httpKind(address string) *front.Kind {
	usage := "address of the JSON API"
	if address == "" { // of weir proxy
		usage = "not for the traffic, which goes to --listen: " + usage + " for programs that ask"
	}
	return &front.Kind{
		Name: frontHTTP, Default: address, Usual: defaultHTTP, Usage: usage, Connections: defaultConnections,
		Bounded: "--http, and of --admin,", Register: o.http.register, Check: o.checkHTTP,
		New: func(s front.Shared) (front.Made, error) { return o.running.newHTTP(s) },
	}
}

// adminKind is the front of the admin pages, where they have one of their own. It may have as many connections as that of HTTP.
func (o *options) adminKind() *front.Kind {
	return &front.Kind{
		Name: frontAdmin, Bare: true, Usual: usualAdmin,
		Usage: "address of the admin API, the dashboard and the metrics, where they are not at --http",
		New:   func(s front.Shared) (front.Made, error) { return o.running.newAdmin(s) },
	}
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	fs.Var(flags.Of("names", &f.names, joined, hostNames), "http-names",
		"names of hosts, joined by commas, under which --http answers on a loopback address besides\nlocalhost and addresses; "+
			"on other addresses it answers under any name (default: none)")
	f.trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	fs.Var(flags.Networks(&f.trusted), "trust-proxy",
		"addresses or networks of the proxies that ask at /v1/auth and are believed what they say of a request")
	f.authStatus = defaultAuthStatus
	fs.Var(flags.Int(&f.authStatus, 400, 499), "auth-refusal-status",
		"status of refusals at /v1/auth, from 400 to 499; at /v1/auth/nginx it is 403 unless this is 401")
	f.authHeaders = headersIETF
	fs.Var(flags.OneOf(&f.authHeaders, headersNone, headersIETF), "auth-headers",
		"header fields of answers at /v1/auth: RateLimit and RateLimit-Policy,\nwhich name policies to clients where the proxy "+
			"passes them on, as bodies of\nrefusals do, or none, without names in bodies")
}

const (
	longestName = 253
	nameBytes   = "abcdefghijklmnopqrstuvwxyz0123456789-._"
)

func joined(names []string) string { return strings.Join(names, ",") }

// hostNames reads names of hosts, joined by commas and without ports.
func hostNames(s string) ([]string, error) {
	var all []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		clean := keytext.CleanHost(name)
		if clean == "" || len(clean) > longestName || strings.Trim(clean, nameBytes) != "" || strings.ContainsAny(name, ":%") {
			return nil, flags.Errorf(
				"%s is not the name of a host: must be such as weir.internal, without a port, up to 253 bytes", flags.Quote(name))
		}
		all = append(all, clean)
	}
	return all, nil
}

// checkHTTP finds flags of the JSON API that are given although it is not offered.
func (o *options) checkHTTP(fs *pflag.FlagSet) error {
	if o.address(frontHTTP) == "" {
		return flags.Alone(fs, "needs --"+frontHTTP, "trust-proxy", "auth-refusal-status", "auth-headers")
	}
	if !fs.Changed("auth-refusal-status") {
		o.http.authStatus = 0
	}
	return nil
}

// authFields are the header fields of --auth-headers.
func (f *httpFlags) authFields() ratelimitfields.Fields {
	if f.authHeaders == headersNone {
		return ratelimitfields.NoFields
	}
	return ratelimitfields.RateLimit11
}

// pages make what is answered over HTTP, to clients and to operators, as soon as it is known where.
func (s *serving) pages() (err error) {
	o := s.o
	at := s.listener(frontAdmin)
	apart := at != nil
	if !apart {
		at = s.listener(frontHTTP)
	}
	guarding := adminguard.Options{
		Local: at != nil && isLoopback(at.Addr()), Rate: o.admin.rate, Burst: burstOf(o.admin.rate),
		LoginFailed: s.loginFailed,
	}
	if s.secrets.tokens != nil {
		guarding.TokensNow = s.secrets.tokens.Now
	}
	if o.admin.clientCA != "" {
		guarding.Certificate = s.secrets.certificates.Admin
	}
	if s.guard, err = adminguard.New(guarding); err != nil {
		return err
	}
	handling := checkapi.Options{
		Limits: s.limits, Holds: s.held, Admin: s.guard, Audit: s.audit, Extra: s.status,
		Document: sync.OnceValues(func() ([]byte, error) { return adminapi.OpenAPI(checkapi.OpenAPI()) }),
	}
	if s.outside.cluster != nil {
		handling.Quotas, handling.Ready = s.outside.cluster, s.outside.cluster.Ready
	}
	if apart {
		handling.AdminAt = "--admin " + at.Addr().String()
	}
	if at := s.listener(frontProxy); at != nil {
		handling.Traffic = "--" + frontProxy + " " + at.Addr().String()
	}
	s.check = checkapi.NewHandler(handling)
	s.fronts.OnEnd = s.check.EndWaiting
	var members adminapi.Members
	if s.outside.cluster != nil {
		members = s.outside.cluster
	}
	s.admin = adminapi.New(adminapi.Options{
		Members: members, Ready: handling.Ready,
		Limits: s.limits, Guard: s.guard, Audit: s.audit, Refusals: s.refused, Status: s.status, Explain: s.check.Explain,
		Started: s.started, Version: flags.Version(),
	})
	s.operators = &operatorPages{admin: s.admin, ui: dashboard.Handler(), metrics: s.guard.Guarded(s.metrics.Handler())}
	if o.admin.metricsPublic {
		s.operators.metrics = s.metrics.Handler()
	}
	return nil
}

// newHTTP makes the front of the JSON API.
func (s *serving) newHTTP(shared front.Shared) (front.Made, error) {
	all := &site{front: s.check, operators: s.operators, local: isLoopback(shared.Address), names: s.o.http.names}
	certificates := s.secrets.certificates.ofAdmin
	if admin := s.listener(frontAdmin); admin != nil {
		all.operators, all.elsewhere, certificates = nil, "--admin "+admin.Addr().String(), s.secrets.certificates.of
	}
	status := make(map[string]func() any)
	if s.o.configured() {
		auth, err := forwardauth.New(forwardauth.Options{
			Decider: s.limits.Engine(), Trusted: s.o.http.trusted, Status: s.o.http.authStatus, Logger: s.log,
			Fields: s.o.http.authFields(),
		})
		if err != nil {
			return front.Made{}, err
		}
		all.auth, status["forward_auth"] = auth, func() any { return auth.Counts() }
	}
	made := s.newSite(frontHTTP, all, certificates("h2", "http/1.1"), &shared)
	maps.Copy(made.Status, status)
	if s.fronts.All[0].Name == frontHTTP { // it is what the server is for
		made.Told = []any{"address", shared.Address.String()}
		made.Total = func() []any {
			report := s.limits.Engine().Report()
			return []any{"requests", report.Requests, "refused", report.Refused, "rejected", s.check.Rejected()}
		}
	}
	return made, nil
}

// newAdmin makes the front of the admin pages.
func (s *serving) newAdmin(shared front.Shared) (front.Made, error) {
	for _, o := range s.o.fronts.offers {
		if o.Name == frontHTTP {
			shared.MaxConnections, shared.ConnectionsPerAddress = o.Bound.Most, o.Bound.OfOne
		}
	}
	certificates := s.secrets.certificates.ofAdmin("h2", "http/1.1")
	return s.newSite(frontAdmin, &site{front: s.check.Admin(), operators: s.operators}, certificates, &shared), nil
}

// newSite makes the front of a site.
func (s *serving) newSite(name string, all *site, certificates *tls.Config, shared *front.Shared) front.Made {
	bound := shared.Bound()
	server := front.NewHTTPServer(shared.Traced(all), certificates, bound, s.log)
	return front.Made{Front: server, Status: map[string]func() any{name: func() any {
		status := make(map[string]any)
		bound.TellRequests(status)
		return status
	}}}
}

// drain makes what is asked about the server say that it shuts down.
func (s *serving) drain() {
	s.check.Drain()
	s.admin.Drain()
}
