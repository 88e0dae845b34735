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

// kinds are the fronts that do not speak HTTP.
func kinds() []*front.Kind {
	return []*front.Kind{
		respapi.Kind(),
		rlsapi.Kind(),
	}
}

// frontFlags say what is listened on, and how.
type frontFlags struct {
	tls    front.TLSFiles
	offers []*front.Offer
}

func (f *frontFlags) register(fs *pflag.FlagSet) {
	for _, o := range f.offers {
		o.RegisterAddress(fs)
	}
	fs.Var(flags.File(&f.tls.Certificate), "tls-cert",
		"certificate of all fronts in PEM, read again when it changes (default: none, they speak no TLS)")
	fs.Var(flags.File(&f.tls.Key), "tls-key", "private key of --tls-cert in PEM (default: none)")
	fs.Var(flags.File(&f.tls.ClientCA), "tls-client-ca",
		"authorities in PEM of which every client must have a certificate (default: none is needed)")
}

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
	for i, a := range o.fronts.offers {
		for _, other := range o.fronts.offers[:i] {
			if a.Address != "" && a.Address == other.Address && !front.IsAnyPort(a.Address) {
				return flags.Errorf("--%s %q: is the address of --%s as well: each front needs a port of its own",
					a.Name, a.Address, other.Name)
			}
		}
	}
	return nil
}

// address is that of a front, "" if it is not offered.
func (o *options) address(name string) string {
	for _, offer := range o.fronts.offers {
		if offer.Name == name {
			return offer.Address
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
	tokens       *front.Reread[[]adminguard.Token]
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
