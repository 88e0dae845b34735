package serve

import (
	"crypto/tls"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
)

const (
	defaultHTTP = "127.0.0.1:7070"
	frontHTTP   = "http"
	frontAdmin  = "admin"
)

// kinds are the fronts besides that of HTTP.
func kinds() []*front.Kind {
	return []*front.Kind{
		respapi.Kind(),
		rlsapi.Kind(),
	}
}

// frontFlags say what is listened on, and how.
type frontFlags struct {
	http      string
	httpNames []string
	httpBound front.Connections
	tls       front.TLSFiles
	offers    []*front.Offer
}

const defaultConnections = 10_000

func (f *frontFlags) register(fs *pflag.FlagSet) {
	f.http = defaultHTTP
	fs.Var(flags.Listen(&f.http), "http", "address of the JSON API; port 0 is any that is free, and is printed")
	fs.Var(hostNames{&f.httpNames}, "http-names",
		"names of hosts, joined by commas, under which --http answers on a loopback address besides\nlocalhost and addresses; "+
			"on other addresses it answers under any name (default: none)")
	f.httpBound.Register(fs, frontHTTP, ", and of --admin", defaultConnections)
	for _, o := range f.offers {
		o.RegisterAddress(fs)
	}
	fs.Var(flags.File(&f.tls.Certificate), "tls-cert",
		"certificate of all fronts in PEM, read again when it changes (default: none, they speak no TLS)")
	fs.Var(flags.File(&f.tls.Key), "tls-key", "private key of --tls-cert in PEM (default: none)")
	fs.Var(flags.File(&f.tls.ClientCA), "tls-client-ca",
		"authorities in PEM of which every client must have a certificate (default: none is needed)")
}

// What --auth-headers may be.
const (
	headersNone = "none"
	headersIETF = "ietf"
)

// check finds flags that do not go together.
func (f *frontFlags) check(fs *pflag.FlagSet) error {
	for _, o := range f.offers {
		if err := o.CheckFlags(fs); err != nil {
			return err
		}
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
	addresses := o.addresses()
	for i, a := range addresses {
		for _, other := range addresses[:i] {
			if a.at != "" && a.at == other.at && !front.IsAnyPort(a.at) {
				return flags.Errorf("--%s %q: is the address of --%s as well: each front needs a port of its own",
					a.name, a.at, other.name)
			}
		}
	}
	return nil
}

// address is where a front listens, by the flag of its name.
type address struct{ name, at string }

// addresses are those of all fronts.
func (o *options) addresses() []address {
	all := []address{{frontHTTP, o.fronts.http}}
	for _, offer := range o.fronts.offers {
		all = append(all, address{offer.Name, offer.Address})
	}
	return append(all, address{frontAdmin, o.admin.address})
}

// address is that of a front, "" if it is not offered.
func (o *options) address(name string) string {
	for _, a := range o.addresses() {
		if a.name == name {
			return a.at
		}
	}
	return ""
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

// secrets are what the files of flags have.
type secrets struct {
	tokens       *adminguard.TokenFile
	certificates certificates
}

// secrets reads them.
func (o *options) secrets(log *slog.Logger) (s secrets, err error) {
	if s.tokens, err = o.admin.tokens(log); err != nil {
		return s, err
	}
	s.certificates, err = o.fronts.certificates(o.admin.clientCA, log)
	return s, err
}
