package serverflags

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// RegisterSeveral is Register for a command that --server can be given to several times: it does the same in each server, with
// the same token and certificates.
func (s *Server) RegisterSeveral(fs *pflag.FlagSet) {
	s.Register(fs)
	f := fs.Lookup("server")
	f.Value = &serverURLs{s: s}
	f.Usage += "; once for each replica that is meant"
}

// Several reports whether more than one server was given.
func (s *Server) Several() bool { return len(s.others) > 0 }

// Clients returns a client for each server, in the order of the flags. Close them.
func (s *Server) Clients() ([]*admin.Client, error) {
	clients := make([]*admin.Client, 0, 1+len(s.others))
	for _, url := range append([]string{s.url}, s.others...) {
		one := *s
		one.url = url
		client, err := one.Client()
		if err != nil {
			for _, made := range clients {
				made.Close()
			}
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// serverURLs is the value of --server that may be repeated.
type serverURLs struct {
	s     *Server
	given bool
}

// String is the current value.
func (u *serverURLs) String() string {
	if u.s == nil {
		return ""
	}
	return strings.Join(append([]string{u.s.url}, u.s.others...), ", ")
}

// Set adds the URL of a server; the first one takes the place of the default.
func (u *serverURLs) Set(text string) error {
	var one serverURL
	switch err := one.Set(text); {
	case err != nil:
		return err
	case !u.given:
		u.s.url, u.given = string(one), true
	case string(one) == u.s.url || slices.Contains(u.s.others, string(one)):
		return flags.Errorf("is given twice")
	default:
		u.s.others = append(u.s.others, string(one))
	}
	return nil
}

// Type is what help shows in place of a value.
func (*serverURLs) Type() string { return "url" }
