package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/internal/inwords"
)

// dialer returns what connects to the server.
func (o *options) dialer(ctx context.Context) (func() (net.Conn, error), error) {
	plain := &net.Dialer{Timeout: o.timeout}
	if !o.tls.on {
		return func() (net.Conn, error) { return plain.DialContext(ctx, "tcp", o.address) }, nil
	}
	roots, err := flags.Authorities("tls-ca", o.tls.ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots,
		InsecureSkipVerify: o.tls.insecure, //nolint:gosec // the flag says so, and is warned of
	}
	switch o.front {
	case frontRLS:
		config.NextProtos = []string{"h2"}
	case frontHTTP:
		config.NextProtos = []string{"http/1.1"}
	}
	secure := &tls.Dialer{NetDialer: plain, Config: config}
	return func() (net.Conn, error) { return secure.DialContext(ctx, "tcp", o.address) }, nil
}

const longestPassword = 4096

// readPassword reads the password in a file, without the ends of lines behind it.
func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return "", flags.Inputf("--password-file: %s", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > longestPassword {
		return "", flags.Inputf("--password-file: %s has %d bytes: must have from 1 to %d", path, len(password), longestPassword)
	}
	return password, nil
}

// unreachable says of an error of connecting, or of the first request, what can be done about it.
func (o *options) unreachable(err error) error {
	var (
		protocol  *protocolError
		login     *loginError
		probe     *probeError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		record    tls.RecordHeaderError
		network   net.Error
	)
	what := "weir: " + o.address
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: no program listens there: start the server, such as %q, or name another by --address",
			what, o.starts())
	case errors.As(err, &record):
		return fmt.Errorf("%s: the server does not speak TLS: leave out --tls", what)
	case errors.As(err, &authority):
		return fmt.Errorf("%s: the server's certificate is signed by an unknown authority: name it by --tls-ca", what)
	case errors.As(err, &hostname):
		return fmt.Errorf("%s: %w", what, err)
	case errors.As(err, &login):
		return fmt.Errorf("%s: %w", what, err)
	case errors.As(err, &probe) && strings.HasPrefix(probe.text, "NOAUTH"):
		return fmt.Errorf("%s: %s: give --password-file", what, probe.text)
	case errors.As(err, &probe):
		return fmt.Errorf("%s: the first request was answered with an error: %s", what, probe.text)
	case errors.As(err, &protocol):
		return fmt.Errorf("%s: %w: is it a server for %q? is --tls needed?", what, err, "weir bench "+o.front)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s has not answered within %s", what, inwords.Short(o.timeout))
	case connectionKind(err) != "connection failed":
		return fmt.Errorf("%s: the server closes the connection: is it one for %q? is --tls needed?", what, "weir bench "+o.front)
	default:
		return fmt.Errorf("%s cannot be reached: %w", what, err)
	}
}

// starts is a command that starts a server for the front.
func (o *options) starts() string {
	flag := map[string]string{frontHTTP: "--http", frontRESP: "--resp", frontRLS: "--grpc"}[o.front]
	return "weir serve " + flag + " " + o.address
}
