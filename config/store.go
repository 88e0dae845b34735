package config

import (
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Store is where the states of shared policies are kept. Nothing has been opened: that is for the program. What has its zero
// value was not given.
type Store struct {
	// Source is its place, such as "weir.yaml:3:1".
	Source string
	// URL is the server, and Addresses are its other form: host:port of a server, of some servers of a cluster, or of the
	// sentinels that watch the set Master. One of the two is given.
	URL       string
	Addresses []string
	Master    string
	// Username and Password are those of the servers, SentinelUsername and SentinelPassword those of the sentinels.
	Username, Password                 string
	SentinelUsername, SentinelPassword string
	// Database is the number of the database.
	Database int
	// TLS is true if the servers at Addresses are reached over TLS.
	TLS bool
	// Prefix begins the name of every key.
	Prefix string
	// Timeout is how long a decision waits for the store.
	Timeout time.Duration
	// MaxInFlight is how many requests may be waiting for the store, Connections how many connections to each server they share.
	MaxInFlight, Connections int
	// Replicas is how many processes there are taken to be until the store has told.
	Replicas int
	// Leased is about policies of that consistency.
	Leased struct {
		Term    time.Duration
		MaxKeys int
	}
	// Optimistic is about policies of that consistency.
	Optimistic struct {
		Interval time.Duration
		Drift    int // per cent of a limit
		MaxKeys  int
	}

	place  value
	where  string // as it may be shown
	origin Mistake
}

// String is where the store is, without what must not be shown: passwords, and what came from the environment.
func (s *Store) String() string { return s.where }

// GoString is String: a store that is printed with all its fields shows no password either.
func (s *Store) GoString() string { return "config.Store(" + strconv.Quote(s.where) + ")" }

// mostPrefix is how long a prefix may be.
const mostPrefix = 128

// store reads where shared policies are kept: a URL, or a mapping.
func (d *decoder) store(v value) *Store {
	s := &Store{Source: d.place(v), place: v, origin: *d.source.mistake(v.key.Line, v.key.Column, "", "")}
	s.origin.Path = v.path
	if describe(v) != isMapping {
		d.storeURL(v, s)
		return s
	}
	o, ok := d.object(v, storeKind)
	if !ok {
		return s
	}
	at, hasURL := o.get("url")
	addresses, hasAddresses := o.get("addresses")
	switch {
	case hasURL && hasAddresses:
		d.wrong(value{addresses.key, addresses.path, addresses.key}, "addresses stand beside url: there must be one of them",
			"write further addresses into url, as ?addr=host:port")
	case hasURL:
		d.storeURL(at, s)
	case hasAddresses:
		d.storeAddresses(addresses, s)
	default:
		o.missing("url", "is missing: a store needs url, or addresses", "add url: redis://127.0.0.1:6379, for instance")
	}
	d.storeAccess(o, s, hasAddresses)
	if prefix, given := o.get("prefix"); given {
		if x, ok := d.text(prefix, "a text of 1 to 128 bytes without braces", "write weir:, for instance"); ok {
			s.Prefix = x.text
			if x.text == "" || len(x.text) > mostPrefix || strings.ContainsAny(x.text, "{}") {
				d.wrong(prefix, "must be a text of 1 to 128 bytes without braces", "write weir:, for instance")
			}
		}
	}
	if timeout, given := o.get("timeout"); given {
		s.Timeout = d.duration(timeout, time.Millisecond, time.Minute)
	}
	if most, given := o.get("max_in_flight"); given {
		n, _ := d.number(most, 1, 1<<20, "a number of requests")
		s.MaxInFlight = int(n)
	}
	if connections, given := o.get("connections"); given {
		s.Connections = d.connections(connections)
	}
	if replicas, given := o.get("replicas"); given {
		n, _ := d.number(replicas, 1, 10_000, "a number of processes")
		s.Replicas = int(n)
	}
	d.storeModes(o, s)
	return s
}

// connections reads how many there are to each server. It is 0 after a mistake.
func (d *decoder) connections(v value) int {
	const must, fix = "1, 2, 4 or 8", "write 2, for instance"
	s, ok := d.scalar(v, must, fix)
	if !ok {
		return 0
	}
	switch s.text {
	case "1", "2", "4", "8":
		return int(s.text[0] - '0')
	}
	d.wrong(v, "must be "+must, fix)
	return 0
}

// storeModes reads what is about leased and optimistic policies.
func (d *decoder) storeModes(o *object, s *Store) {
	if l, ok := d.mode(o, "leased", leasedKind, &s.Leased.MaxKeys); ok {
		if term, given := l.get("term"); given {
			s.Leased.Term = d.duration(term, 10*time.Millisecond, time.Minute)
		}
	}
	l, ok := d.mode(o, "optimistic", optimisticKind, &s.Optimistic.MaxKeys)
	if !ok {
		return
	}
	if interval, given := l.get("interval"); given {
		s.Optimistic.Interval = d.duration(interval, time.Millisecond, time.Minute)
	}
	if drift, given := l.get("drift"); given {
		s.Optimistic.Drift = d.percent(drift)
	}
}

// mode reads the mapping of a mode, if there is one, and how many keys it has.
func (d *decoder) mode(o *object, name string, k kind, maxKeys *int) (*object, bool) {
	v, given := o.get(name)
	if !given {
		return nil, false
	}
	l, ok := d.object(v, k)
	if !ok {
		return nil, false
	}
	if keys, given := l.get(keyMaxKeys); given {
		n, _ := d.number(keys, 1, 1_000_000_000, "a number of keys")
		*maxKeys = int(n)
	}
	return l, true
}

// percent reads a share of a limit.
func (d *decoder) percent(v value) int {
	const must, fix = "a share of the limit from 1% to 100%", "write 10%, for instance"
	s, ok := d.scalar(v, must, fix)
	if !ok {
		return 0
	}
	digits, isShare := strings.CutSuffix(s.text, "%")
	n, valid := integer(digits)
	if !isShare || !valid || n < 1 || n > 100 {
		if valid && !isShare && !s.env && n >= 1 && n <= 100 {
			d.wrong(v, "must be "+must, "write "+digits+"%")
		} else {
			d.wrong(v, "must be "+must, fix)
		}
		return 0
	}
	return int(n)
}

// secret reads a text that is never shown. A number is taken as it is written.
func (d *decoder) secret(v value, must string) (string, bool) {
	return d.secretOf(v, must, "write ${REDIS_PASSWORD}, and set this variable of the environment")
}

// secretOf is secret with what to do otherwise.
func (d *decoder) secretOf(v value, must, instead string) (string, bool) {
	hidden := func(at int, message, fix string) (string, bool) {
		m := d.about(v, message, fix)
		m.Value = ""
		if at > 0 {
			m.Line, m.Column = d.source.position(v.node, at)
		}
		d.add(m)
		return "", false
	}
	if describe(v) == isMapping || describe(v) == isList || v.isNull() {
		return hidden(0, describe(v)+": must be "+must, instead)
	}
	x, wrong := expand(v.node.Value, d.env)
	if wrong != nil {
		return hidden(wrong.at, wrong.message, wrong.fix)
	}
	d.shown[v.path] = "xxxxx"
	return x.text, true
}

// storeAccess reads who we are for the servers, and how they are reached if not by a URL.
func (d *decoder) storeAccess(o *object, s *Store, byAddress bool) {
	for _, name := range []struct {
		key string
		to  *string
	}{{keyUsername, &s.Username}, {"sentinel_username", &s.SentinelUsername}} {
		if v, given := o.get(name.key); given {
			if x, ok := d.text(v, "a text", "write default, for instance"); ok {
				*name.to = x.text
			}
		}
	}
	for _, name := range []struct {
		key string
		to  *string
	}{{keyPassword, &s.Password}, {"sentinel_password", &s.SentinelPassword}} {
		if v, given := o.get(name.key); given {
			*name.to, _ = d.secret(v, "a text")
		}
	}
	if db, given := o.get("database"); given {
		n, _ := d.number(db, 0, 1<<16-1, "the number of a database")
		s.Database = int(n)
	}
	for _, key := range []string{"master", keyTLS} {
		v, given := o.get(key)
		switch {
		case !given:
		case !byAddress:
			fix := "write it into url: rediss:// is over TLS"
			if key == "master" {
				fix = "write it into url, as ?master_set=name"
			}
			d.wrong(value{v.key, v.path, v.key}, key+" belongs to addresses: beside url there must be none", fix)
		case key == keyTLS:
			s.TLS = d.boolean(v)
		default:
			if x, ok := d.text(v, "the name of a set of servers", "write mymaster, for instance"); ok {
				s.Master = x.text
			}
		}
	}
}

// storeAddresses reads a list of host:port.
func (d *decoder) storeAddresses(v value, s *Store) {
	items, ok := d.list(v, true, "host:port")
	if !ok {
		return
	}
	shown := make([]string, 0, len(items))
	for _, item := range items {
		x, ok := d.text(item, "host:port", "write 127.0.0.1:6379, for instance")
		if !ok {
			continue
		}
		host, port, err := net.SplitHostPort(x.text)
		if err != nil || !isPort(port) || host == "" || strings.ContainsAny(host, "/@") {
			m := d.about(item, "must be host:port", "write 127.0.0.1:6379, for instance")
			m.Value = redacted(m.Value)
			d.add(m)
			continue
		}
		s.Addresses = append(s.Addresses, x.text)
		shown = append(shown, d.written(item.path, x.text))
	}
	s.where = strings.Join(shown, ", ")
}

// Same reports whether two stores are the same with the same options, wherever their Source is. A nil Store is none.
func (s *Store) Same(o *Store) bool {
	if s == nil || o == nil {
		return s == o
	}
	a, b := *s, *o
	if !slices.Equal(a.Addresses, b.Addresses) {
		return false
	}
	a.Addresses, b.Addresses, a.Source, b.Source, a.where, b.where = nil, nil, "", "", "", ""
	a.place, b.place, a.origin, b.origin = value{}, value{}, Mistake{}, Mistake{}
	return reflect.DeepEqual(a, b)
}

// StoreErrors is the error of a program that refuses the store of a file, or that it has none.
func (f *File) StoreErrors(message, fix string) *Errors {
	m := Mistake{File: f.Name, Line: 1, Column: 1, Path: keyStore}
	if f.Store != nil {
		m = f.Store.origin
	}
	m.Message, m.Fix = message, fix
	return &Errors{File: f.Name, Mistakes: []Mistake{m}}
}

// At is the store with its options at another place, that of a URL: without the servers of the file and its user for them.
func (s *Store) At(place *Store) *Store {
	if s == nil {
		return place
	}
	at := *s
	at.Source, at.URL, at.where = place.Source, place.URL, place.where
	at.Addresses, at.Master, at.TLS, at.Database = nil, "", false, 0
	at.Username, at.Password, at.SentinelUsername, at.SentinelPassword = "", "", "", ""
	return &at
}
