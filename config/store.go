package config

import (
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/config/yamlread"
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

	place yamlread.Value
	where string // as it may be shown
}

// String is where the store is, without what must not be shown: passwords, and what came from the environment.
func (s *Store) String() string { return s.where }

// GoString is String: a store that is printed with all its fields shows no password either.
func (s *Store) GoString() string { return "config.Store(" + strconv.Quote(s.where) + ")" }

// mostPrefix is how long a prefix may be.
const mostPrefix = 128

// store reads where shared policies are kept: a URL, or a mapping.
func (d *decoder) store(v yamlread.Value) *Store {
	s := &Store{Source: d.Place(v), place: v}
	if !v.IsMapping() {
		d.storeURL(v, s)
		return s
	}
	o, ok := fill(d, v, storeTable, s)
	if !ok {
		return s
	}
	at, hasURL := o.Get("url")
	addresses, hasAddresses := o.Get("addresses")
	switch {
	case hasURL && hasAddresses:
		d.Wrong(addresses.OfKey(), "addresses stand beside url: there must be one of them",
			"write further addresses into url, as ?addr=host:port")
	case hasURL:
		d.storeURL(at, s)
	case hasAddresses:
		d.storeAddresses(addresses, s)
	default:
		o.Missing("url", "is missing: a store needs url, or addresses", "add url: redis://127.0.0.1:6379, for instance")
	}
	d.storeAccess(o, hasAddresses)
	return s
}

// connections reads how many there are to each server. It is 0 after a mistake.
func (d *decoder) connections(v yamlread.Value) int {
	const must, fix = "1, 2, 4 or 8", "write 2, for instance"
	s, ok := d.Scalar(v, must, fix)
	if !ok {
		return 0
	}
	switch s.Text {
	case "1", "2", "4", "8":
		return int(s.Text[0] - '0')
	}
	d.Wrong(v, "must be "+must, fix)
	return 0
}

// percent reads a share of a limit.
func (d *decoder) percent(v yamlread.Value) int {
	const must, fix = "a share of the limit from 1% to 100%", "write 10%, for instance"
	s, ok := d.Scalar(v, must, fix)
	if !ok {
		return 0
	}
	digits, isShare := strings.CutSuffix(s.Text, "%")
	n, valid := yamlread.Integer(digits)
	if !isShare || !valid || n < 1 || n > 100 {
		if valid && !isShare && !s.FromEnv && n >= 1 && n <= 100 {
			d.Wrong(v, "must be "+must, "write "+digits+"%")
		} else {
			d.Wrong(v, "must be "+must, fix)
		}
		return 0
	}
	return int(n)
}

// secret reads a text that is never shown. A number is taken as it is written. The variable is one that it may be in.
func (d *decoder) secret(v yamlread.Value, variable string) string {
	x, ok := d.ShownScalar(v, func(string) string { return "" }, "a text",
		"write ${"+variable+"}, and set this variable of the environment")
	if ok {
		d.Shown[v.Path] = "xxxxx"
	}
	return x.Text
}

// storeAccess finds keys that are for the other form of a store.
func (d *decoder) storeAccess(o *yamlread.Object, byAddress bool) {
	for key, fix := range map[string]string{
		"master": "write it into url, as ?master_set=name", keyTLS: "write it into url: rediss:// is over TLS",
	} {
		if v, given := o.Get(key); given && !byAddress {
			d.Wrong(v.OfKey(), key+" belongs to addresses: beside url there must be none", fix)
		}
	}
}

// storeAddresses reads a list of host:port.
func (d *decoder) storeAddresses(v yamlread.Value, s *Store) {
	items, ok := d.oneOrList(v, "host:port")
	if !ok {
		return
	}
	shown := make([]string, 0, len(items))
	for _, item := range items {
		x, ok := d.Text(item, "host:port", "write 127.0.0.1:6379, for instance")
		if !ok {
			continue
		}
		host, port, err := net.SplitHostPort(x.Text)
		if err != nil || !isPort(port) || host == "" || strings.ContainsAny(host, "/@") {
			fix := "write 127.0.0.1:6379, for instance"
			if x.Text != "" && !x.FromEnv && !strings.ContainsAny(x.Text, ":/@ ") {
				fix = "write " + x.Text + ":6379"
			}
			d.WrongAs(item, Redacted(item.Node.Value), "must be host:port", fix)
			continue
		}
		s.Addresses = append(s.Addresses, x.Text)
		shown = append(shown, d.written(item.Path, x.Text))
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
	a.place, b.place = yamlread.Value{}, yamlread.Value{}
	return reflect.DeepEqual(a, b)
}

// StoreErrors is the error of a program that refuses the store of a file, or that it has none.
func (f *File) StoreErrors(message, fix string) *yamlread.Errors {
	m := yamlread.Mistake{File: f.Name, Line: 1, Column: 1, Path: keyStore}
	if f.Store != nil {
		m.Line, m.Column = f.Store.place.Key.Line, f.Store.place.Key.Column
	}
	m.Message, m.Fix = message, fix
	return &yamlread.Errors{File: f.Name, Mistakes: []yamlread.Mistake{m}}
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
