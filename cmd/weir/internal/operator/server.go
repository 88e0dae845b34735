package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// defaultServer is where a server listens without further flags.
const defaultServer = "http://127.0.0.1:7070"

// ExitStatus is the end of the help of commands that ask a server.
const ExitStatus = `

The exit status is 0 on success, 1 if the server cannot be reached or cannot do
it now, and 2 if the question is wrong, such as a policy that is not there.`

// Server is which server is asked, and how.
type Server struct {
	urls      []string
	tokenFile string
	authority string
	cert, key string
	timeout   time.Duration
}

// usualTimeout is how long a server may take for what it has at hand.
const usualTimeout = 10 * time.Second

// Register adds the flags to fs.
func (s *Server) Register(fs *pflag.FlagSet) { s.RegisterWithin(usualTimeout, fs) }

// RegisterWithin is Register for what a server may take longer for.
func (s *Server) RegisterWithin(timeout time.Duration, fs *pflag.FlagSet) {
	s.register(timeout, false, fs)
}

// RegisterSeveral is Register for a command that --server can be given to several times: it does the same in each server, with
// the same token and certificates.
func (s *Server) RegisterSeveral(fs *pflag.FlagSet) { s.register(usualTimeout, true, fs) }

func (s *Server) register(timeout time.Duration, several bool, fs *pflag.FlagSet) {
	s.urls, s.timeout = []string{defaultServer}, timeout
	usage := "where the admin pages of weir serve are: its --http, or its --admin"
	if several {
		usage += "; once for each replica that is meant"
	}
	fs.Var(s.serverURLs(several), "server", usage)
	fs.Var(flags.File(&s.tokenFile), "token-file", "file with the token of --admin-token-file of the server (default: none)")
	fs.Var(flags.File(&s.authority), "tls-ca",
		"file of the authorities, in PEM, one of which has signed the certificate of the server (default: those of the system)")
	fs.Var(flags.File(&s.cert), "tls-cert",
		"file of the certificate, in PEM, to show to a server with --admin-client-ca; needs --tls-key (default: none)")
	fs.Var(flags.File(&s.key), "tls-key", "file of its private key, in PEM (default: none)")
	fs.Var(flags.Duration(&s.timeout, time.Millisecond, time.Hour), "timeout", "how long the answer may take, from 1ms to 1h")
}

// Client returns a client of the server. Close it.
func (s *Server) Client() (*Client, error) { return s.client(s.urls[0]) }

func (s *Server) client(at string) (*Client, error) {
	o := ClientOptions{Server: at, Timeout: s.timeout}
	var err error
	if s.tokenFile != "" {
		if o.Token, err = readToken(s.tokenFile); err != nil {
			return nil, err
		}
	}
	if o.TLS, err = s.tls(); err != nil {
		return nil, err
	}
	client, err := NewClient(o)
	if err != nil {
		return nil, flags.Errorf("%s", strings.TrimPrefix(err.Error(), "weir: "))
	}
	return client, nil
}

func (s *Server) tls() (*tls.Config, error) {
	if (s.cert == "") != (s.key == "") {
		return nil, flags.Errorf("--tls-cert and --tls-key need each other")
	}
	if s.authority == "" && s.cert == "" {
		return nil, nil //nolint:nilnil // nothing is to be changed
	}
	roots, err := flags.Authorities("tls-ca", s.authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, flags.Inputf("--tls-cert, --tls-key: %s", strings.TrimPrefix(err.Error(), "tls: "))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// mostToken is how long the file of a token may be.
const mostToken = 64 << 10

// readToken reads a file with a token, or with a name and a token: the file of a server that knows one.
func readToken(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return "", flags.Inputf("--token-file: %s", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, mostToken+1))
	if err != nil {
		return "", flags.Inputf("--token-file: %s", err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > 1 {
		return "", flags.Inputf("--token-file: %s has %d lines: must have one, with the token: of a file of several, "+
			"your own line in a file of its own", path, len(lines))
	}
	words := bytes.Fields(lines[0])
	if len(words) == 0 || len(words) > 2 || len(text) > mostToken {
		return "", flags.Inputf("--token-file: %s has no token: must have one line, with a token, or its name and the token",
			path)
	}
	token := words[len(words)-1]
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return "", flags.Inputf("--token-file: %s has the byte %#x: must be printable ASCII", path, c)
		}
	}
	return string(token), nil
}

// serverURLs returns a flag value that is the URL of a server, or may be repeated for several. The first one takes the place of
// the default.
func (s *Server) serverURLs(several bool) *flags.Value {
	given := false
	show := func(urls []string) string { return strings.Join(urls, ", ") }
	return flags.Of("url", &s.urls, show, func(text string) ([]string, error) {
		u, err := url.Parse(text)
		switch {
		case err == nil && u.User != nil:
			return nil, errors.New("must have no user and no password: what the server wants to see is in --token-file")
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(text, "?#"):
			return nil, errors.New("must be a URL such as http://127.0.0.1:7070 or https://weir.example.com")
		case u.Port() != "":
			if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("has the port %s: must be from 1 to 65535", u.Port())
			}
		}
		text = strings.TrimRight(text, "/")
		switch {
		case !several || !given:
			given = true
			return []string{text}, nil
		case slices.Contains(s.urls, text):
			return nil, flags.Errorf("is given twice")
		}
		return append(s.urls, text), nil
	})
}

// WrongQuestion turns an error of a client into that of a command: with the exit status 2 if the question was wrong.
func WrongQuestion(err error) error {
	refused, ok := errors.AsType[*Refused](err)
	if ok && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests {
		return flags.Inputf("%s", strings.TrimPrefix(err.Error(), "weir: "))
	}
	return err
}

// printAnswer writes an answer as it has come, or what text makes of it for people.
func printAnswer(w io.Writer, asJSON bool, answer json.RawMessage, text func(w io.Writer, out terminal.Output)) error {
	var b bytes.Buffer
	if asJSON {
		b.Write(terminal.PrintableJSON(bytes.TrimSpace(answer)))
		b.WriteByte('\n')
	} else {
		text(&b, terminal.Of(w))
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

// Several reports whether more than one server was given.
func (s *Server) Several() bool { return len(s.urls) > 1 }

// Clients returns a client for each server, in the order of the flags. Close them.
func (s *Server) Clients() ([]*Client, error) {
	clients := make([]*Client, 0, len(s.urls))
	for _, at := range s.urls {
		client, err := s.client(at)
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

// GivenFlag is a flag with its value.
type GivenFlag struct{ Flag, Value string }

// Given are the flags by which another command reaches the same server in the same way: none if all are the defaults.
func (s *Server) Given() []GivenFlag {
	var given []GivenFlag
	add := func(flag, value, usual string) {
		if value != usual {
			given = append(given, GivenFlag{flag, value})
		}
	}
	add("--server", s.urls[0], defaultServer)
	add("--token-file", s.tokenFile, "")
	add("--tls-ca", s.authority, "")
	add("--tls-cert", s.cert, "")
	add("--tls-key", s.key, "")
	return given
}

// completeWithin is how long a shell waits for the names of policies.
const completeWithin = time.Second

// CompletePolicies lets shells complete --policy of cmd by the names that the server knows, and by nothing if it does not
// answer.
func (s *Server) CompletePolicies(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("policy", // there is such a flag
		func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			client, err := s.Client()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
			defer cancel()
			var policies []Policy
			if err := client.Get(ctx, PoliciesPath, nil, &policies); err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := make([]cobra.Completion, len(policies))
			for i := range policies {
				names[i] = policies[i].Name
				if len(policies[i].Limits) > 0 {
					names[i] = cobra.CompletionWithDesc(policies[i].Name, policies[i].Limits[0].Holds)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}
