package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parameters are those of a URL: those that matter here, and those that other clients of Redis read.
var parameters = []string{
	"addr", "db", "master_set", "skip_verify", "protocol",
	"client_cache", "client_name", "dial_timeout", "max_retries", "write_timeout",
}

// unread reports whether a URL has what nothing is taken from: tls=true, a name with a mistake, or what follows a # or a ? in a
// password.
func unread(u *url.URL) bool {
	q, err := url.ParseQuery(u.RawQuery)
	for name := range q {
		if !slices.Contains(parameters, name) {
			return true
		}
	}
	return err != nil || u.Fragment != ""
}

// parsed is a URL of which all can be read.
func parsed(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it cannot be parsed") // the error would show the password
	}
	if unread(u) {
		return nil, errors.New("it has a # or a parameter that is not known: accepted are addr, db, master_set and " +
			"skip_verify; for TLS write rediss://, in a password %23 and %3F")
	}
	return u, nil
}

// parse takes from a URL where servers are and how they are reached, and returns the name of the set of sentinels, if any. The
// URL is as other clients of Redis have it; what does not matter here is accepted if it is right.
func (s *servers) parse(text string) (masterSet string, err error) {
	u, err := parsed(text)
	if err != nil {
		return "", err
	}
	q := u.Query()
	switch u.Scheme {
	case "unix":
		s.login.Unix = true
		s.addresses = []string{strings.TrimSpace(u.Path)}
		if u.Path == "" || u.Host != "" || q.Has("addr") || q.Has("master_set") {
			return "", errors.New("a socket has a path and no host, and stands alone")
		}
	case "redis", "valkey", "rediss", "valkeys":
		if u.Opaque != "" { // redis:host:port, of which nothing would be taken
			return "", errors.New("there is no // before the host")
		}
		host, address := hostPort(u.Host, u.Hostname())
		s.addresses = []string{address}
		if u.Scheme == "rediss" || u.Scheme == "valkeys" {
			s.login.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
		}
		if err := s.parseDB(strings.TrimPrefix(u.Path, "/")); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("the scheme is %.20q", u.Scheme)
	}
	if u.User != nil {
		s.login.Username = u.User.Username()
		s.login.Password, _ = u.User.Password()
	}
	return s.parseQuery(q, u.Hostname())
}

// parseQuery takes the parameters of a URL with this host.
func (s *servers) parseQuery(q url.Values, host string) (masterSet string, err error) {
	if err := s.parseDB(q.Get("db")); err != nil {
		return "", err
	}
	for _, name := range []string{"dial_timeout", "write_timeout"} {
		if _, err := time.ParseDuration(q.Get(name)); err != nil && q.Has(name) {
			return "", fmt.Errorf("%s is %.20q", name, q.Get(name))
		}
	}
	if err := s.parseAddresses(q["addr"], host); err != nil {
		return "", err
	}
	if err := s.parseVerify(q); err != nil {
		return "", err
	}
	if masterSet = q.Get("master_set"); masterSet == "" && q.Has("master_set") {
		return "", errors.New("master_set is empty: it is the name of the set that sentinels watch")
	}
	s.login.Old = q.Get("protocol") == "2"
	return masterSet, nil
}

// parseAddresses takes those of further servers, which may lack what the first has.
func (s *servers) parseAddresses(more []string, host string) error {
	for _, other := range more {
		_, address := hostPort(other, host)
		s.addresses = append(s.addresses, address)
	}
	if !s.login.Unix && slices.ContainsFunc(s.addresses, neverReached) {
		return errors.New("a server is not host:port, with an address of IPv6 in brackets and a port from 1 to 65535")
	}
	return nil
}

// parseVerify takes whether the certificate of a server is not to be verified.
func (s *servers) parseVerify(q url.Values) (err error) {
	if s.login.TLS == nil || !q.Has("skip_verify") {
		return nil
	}
	skip, text := true, q.Get("skip_verify")
	if text != "" {
		if skip, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("skip_verify is %.20q", text)
		}
	}
	s.login.TLS.InsecureSkipVerify = skip
	return nil
}

// parseDB takes the number of a database, if there is any.
func (s *servers) parseDB(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= maxDBs {
		return fmt.Errorf("the database is %.20q", text)
	}
	s.login.DB = n
	return nil
}

// neverReached reports whether an address is not host:port, or no port has this number.
func neverReached(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return true
	}
	if ip, _ := netip.ParseAddr(host); strings.Contains(host, ":") && !ip.IsValid() { // h:1:2, taken for one of IPv6
		return true
	}
	n, err := strconv.Atoi(port)
	return err == nil && (n < 1 || n > math.MaxUint16)
}

// hostPort is a host and its address, with what is missing.
func hostPort(text, otherwise string) (host, address string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host = strings.Trim(text, "[]")
	}
	if host == "" {
		host = otherwise
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	return host, net.JoinHostPort(host, port)
}
