package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/config/yamlread"
)

const (
	storeURLIs = "a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket"
	storeFix   = "write redis://127.0.0.1:6379, for instance"
)

// storeSchemes and storeParams are what a URL may begin with, and the parameters that it may have.
var (
	storeSchemes = []string{"redis", "rediss", "valkey", "valkeys", schemeUnix}
	storeParams  = []string{"addr", "db", "master_set", "skip_verify"}
)

const schemeUnix = "unix"

// storeURL reads a URL. Its value is shown without password.
func (d *decoder) storeURL(v yamlread.Value, s *Store) {
	x, ok := d.ShownScalar(v, Redacted, storeURLIs, storeFix)
	if !ok {
		return
	}
	if message, fix := urlFlaw(x.Text); message != "" {
		if x.FromEnv {
			message, fix = "cannot be used once the environment is put in: must be "+storeURLIs, storeFix
		}
		d.WrongAs(v, Redacted(v.Node.Value), message, fix)
		return
	}
	s.URL = x.Text
	s.where = Redacted(v.Node.Value)
}

// urlFlaw says what is wrong with the URL of a store, "" if nothing is, without anything of the URL that is secret.
func urlFlaw(text string) (message, fix string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		fix = storeFix
		if _, port, failed := net.SplitHostPort(text); failed == nil && port != "" && !strings.ContainsAny(text, "@/?") {
			fix = "write redis://" + text
		}
		return "must be " + storeURLIs, fix
	}
	if !slices.Contains(storeSchemes, u.Scheme) {
		return "must be " + storeURLIs, yamlread.Meant(u.Scheme, storeSchemes, storeFix)
	}
	if u.Fragment != "" {
		return "has a #, after which nothing is read: must be " + storeURLIs, "write %23 if it is of the password"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "has parameters that cannot be read: must be " + storeURLIs, storeFix
	}
	for key := range query {
		if !slices.Contains(storeParams, key) {
			return "has a parameter that is not known: accepted are " + yamlread.OneOf(storeParams), yamlread.Meant(key,
				storeParams, "remove it; for TLS write rediss://")
		}
	}
	for _, address := range query["addr"] {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || !isPort(port) {
			return "has an addr that is not host:port", "write ?addr=10.0.0.2:6379, for instance"
		}
	}
	if query.Has("master_set") && query.Get("master_set") == "" {
		return "has an empty master_set: must be the name of the set that sentinels watch",
			"write ?master_set=mymaster, for instance, or remove it"
	}
	return placeFlaw(u, query)
}

// placeFlaw says what is wrong with the host, the port, the path or the database.
func placeFlaw(u *url.URL, query url.Values) (message, fix string) {
	database := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme == schemeUnix && u.Path == "":
		return "has no path: must be unix:///path/to/socket", "write unix:///run/redis/redis.sock, for instance"
	case u.Scheme == schemeUnix && u.Host != "":
		return "has a host, which a socket has not: must be unix:///path/to/socket",
			"write unix:///run/redis/redis.sock, for instance"
	case u.Scheme == schemeUnix:
		database = query.Get("db")
	case u.Hostname() == "":
		return "has no host: must be " + storeURLIs, storeFix
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return "has a host that is not a name or an address: must be " + storeURLIs,
			"write one port, and an address of IPv6 in brackets"
	case u.Path == "/":
		return "ends in a slash without the number of a database: must be " + storeURLIs, "remove the slash"
	case query.Has("db"):
		database = query.Get("db")
	}
	if n, err := strconv.Atoi(database); database != "" && (err != nil || n < 0 || n >= 1<<16) {
		fix = "write redis://host:6379/0, for instance"
		if u.Scheme == schemeUnix {
			fix = "write unix:///run/redis/redis.sock?db=0, for instance"
		}
		return "has a database that is not a number from 0 to 65535", fix
	}
	if port := u.Port(); port != "" && !isPort(port) {
		return "has a port that is not from 1 to 65535", storeFix
	}
	return "", ""
}

// Redacted is a URL, or text in its place, without passwords. What it refers to of the environment stays.
func Redacted(text string) string {
	scheme, rest, hasScheme := strings.Cut(text, "://")
	if !hasScheme {
		scheme, rest = "", text
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, hasPassword := strings.Cut(rest[:at], ":")
		switch {
		case isReference(rest[:at]):
		case hasPassword && isReference(password):
		case hasPassword:
			rest = user + ":xxxxx" + rest[at:]
		default:
			rest = "xxxxx" + rest[at:]
		}
	}
	if before, query, has := strings.Cut(rest, "?"); has && strings.Contains(strings.ToLower(query), "pass") {
		rest = before + "?xxxxx"
	}
	if hasScheme {
		return scheme + "://" + rest
	}
	return rest
}

// isReference reports whether a text is nothing but a variable of the environment, without a default.
func isReference(text string) bool {
	name, ok := strings.CutPrefix(text, "${")
	name, closed := strings.CutSuffix(name, "}")
	return ok && closed && yamlread.IsVariable(name)
}

// ParseStore reads the URL of a store that was not given in a file. The error has what is wrong with it and what to do, without a
// password that is in it.
func ParseStore(text string) (*Store, error) {
	if message, fix := urlFlaw(text); message != "" {
		return nil, &StoreError{Value: Redacted(text), Message: message, Fix: fix}
	}
	return &Store{URL: text, where: Redacted(text)}, nil
}

// StoreError is what is wrong with the URL of a store.
type StoreError struct {
	// Value is the URL without its password, Message what is wrong, Fix what to do about it.
	Value, Message, Fix string
}

// Error is all of that.
func (e *StoreError) Error() string {
	return "weir: store " + strconv.Quote(yamlread.Shorten(e.Value)) + ": " + e.Message + "; " + e.Fix
}

// isPort reports whether a text is the number of a port.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
