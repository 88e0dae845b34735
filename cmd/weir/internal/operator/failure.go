package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
)

// Refused is that a server has answered that it does not do what it was asked.
type Refused struct { //nolint:errname // callers ask whether they were refused
	// Status is that of the answer, and Field what was wrong of what was sent, "" if it was not that.
	Status int
	Field  string
	// NoPage tells that the server has no such page.
	NoPage bool

	text string
}

// Error says it for people.
func (r *Refused) Error() string { return r.text }

const (
	mostExcerpt = 60
	// mostListed is how many policies are listed.
	mostListed = 20
)

// excerpt is the beginning of an answer, in quotes.
func excerpt(text []byte) string {
	if len(text) > mostExcerpt {
		return strconv.Quote(string(text[:mostExcerpt]) + "...")
	}
	return strconv.Quote(string(text))
}

// stranger is the error about a server that answers as no server of weir does.
func (c *Client) stranger(format string, args ...any) error {
	return fmt.Errorf("weir: %s does not answer as weir serve does: %s", c.o.Server, fmt.Sprintf(format, args...))
}

// refused is why the server does not do what it was asked.
func (c *Client) refused(path string, response *http.Response, answer []byte) error {
	path, _, _ = strings.Cut(path, "?")
	var problem struct {
		Detail   string   `json:"detail"`
		Field    string   `json:"field"`
		Mistakes []string `json:"mistakes"`
		Policies []string `json:"policies"`
	}
	status := response.StatusCode
	if status == http.StatusBadRequest && bytes.Contains(answer, []byte("HTTP request to an HTTPS server")) {
		return fmt.Errorf("weir: %s speaks TLS: its URL is https://", c.o.Server)
	}
	if json.Unmarshal(answer, &problem) != nil || problem.Detail == "" {
		return c.stranger("%s is answered with status %d %s", path, status, http.StatusText(status))
	}
	detail, noPage := problem.Detail, false
	switch status {
	case http.StatusUnauthorized:
		if c.o.Token == "" {
			detail = "it wants to see a token: give --token-file, with the file of its --admin-token-file"
		} else {
			detail = "it does not know the token of --token-file: the file must have the one of its --admin-token-file"
		}
	case http.StatusForbidden:
		switch {
		case strings.Contains(detail, "client certificate"):
			detail += ": give --tls-cert and --tls-key"
		case strings.HasPrefix(detail, "Host "):
			detail += "; ask it at an address such as 127.0.0.1, or start it with --admin-token-file"
		default:
			detail += "; start it with --admin 127.0.0.1:7071, where these pages are then, or with --admin-token-file"
		}
	case http.StatusTooManyRequests:
		if seconds := response.Header.Get("Retry-After"); seconds != "" {
			detail += " (retry after " + seconds + " s)"
		}
	case http.StatusNotFound:
		if strings.HasPrefix(detail, "there is no such page") {
			detail = "it has no " + path + ": is it of an older version, or are its pages of --admin at another address?"
			noPage = true
		}
	}
	if n := len(problem.Policies); n > 0 && !strings.Contains(detail, "must be one of: ") {
		detail += "; there are: " + strings.Join(problem.Policies[:min(n, mostListed)], ", ")
		if n > mostListed {
			detail += fmt.Sprintf(" and %d more", n-mostListed)
		}
	}
	for _, m := range problem.Mistakes {
		if m = strings.TrimPrefix(m, "weir: "); !strings.Contains(detail, m) {
			detail += "\n  " + m
		}
	}
	return &Refused{Status: status, Field: problem.Field, NoPage: noPage, text: "weir: " + c.o.Server + ": " + detail}
}

// unanswered is why there is no answer.
func (c *Client) unanswered(asked context.Context, err error) error {
	if asked.Err() != nil {
		return asked.Err()
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	server := c.o.Server
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("weir: %s has not answered within %s", server, c.o.Timeout)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("weir: %s is not reachable: nothing listens there; ask weir serve at --http "+
			"or --admin, weir proxy at --admin", server)
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("weir: %s is not reachable: no address is known of the host %q", server, name.Name)
	}
	if about := c.distrust(err); about != "" {
		return fmt.Errorf("weir: %s %s", server, about)
	}
	if text := err.Error(); strings.HasPrefix(text, "EOF") || strings.Contains(text, "malformed HTTP") {
		return fmt.Errorf("weir: %s does not answer in HTTP: is its URL https://, or the port that of another protocol?", server)
	}
	return fmt.Errorf("weir: %s cannot be asked: %w", server, err)
}

// distrust is why TLS has failed and what to do, "" if it has not.
func (c *Client) distrust(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if c.o.TLS != nil && c.o.TLS.RootCAs != nil {
			return "shows a certificate of another authority than those of --tls-ca: give the one that has signed it"
		}
		return "shows a certificate of an unknown authority: give its certificate by --tls-ca"
	}
	if wrong, ok := errors.AsType[x509.HostnameError](err); ok {
		return "shows a certificate for another name: " + wrong.Error()
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "shows a certificate that does not hold: " + invalid.Error()
	}
	text, own := err.Error(), c.o.TLS != nil && len(c.o.TLS.Certificates) > 0
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	alert := func(what string) bool { return strings.Contains(text, "remote error: tls: "+what) }
	switch {
	case plain, strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "does not speak TLS: is its URL http://?"
	case own && alert("expired certificate"):
		return "does not take the certificate of --tls-cert: it has expired"
	case own && (alert("unknown certificate authority") || alert("bad certificate") || alert("certificate required")):
		return "does not take the certificate of --tls-cert: its --admin-client-ca or --tls-client-ca must have the authority"
	case alert("certificate required"), alert("bad certificate"):
		return "wants to see the certificate of a client: give --tls-cert and --tls-key"
	case strings.HasPrefix(c.o.Server, "https:") && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		about := "has ended the connection: if it wants to see the certificate of a client, give "
		if own {
			about = "has ended the connection: it may not take the certificate of "
		}
		return about + "--tls-cert and --tls-key"
	}
	return ""
}
