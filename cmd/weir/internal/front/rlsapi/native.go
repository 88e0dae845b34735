package rlsapi

import (
	"net/netip"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// protocol is that of requests that descriptors stand for.
const protocol = "rls"

// known is the path of an earlier request of so many entries, and how many requests had another one since. Proxies send the same
// keys again and again: then neither the path nor the map of the attributes is made anew, whose keys are parts of the known path.
// No key in a known path has a slash, so that only the same keys make the same path of as many.
type known struct {
	path    string
	entries int
	others  int
}

// adoptEvery is after how many requests with another path one becomes the known one.
const adoptEvery = 16

// is reports whether entries have the keys of the known path.
func (k *known) is(entries []ratelimitconfig.Entry) bool {
	if k.path == "" || k.entries != len(entries) {
		return false
	}
	path := k.path
	for i := range entries {
		key := entries[i].Key
		if len(path) <= len(key) || path[0] != '/' || path[1:1+len(key)] != key {
			return false
		}
		path = path[1+len(key):]
	}
	return path == ""
}

// native makes r the request that a descriptor stands for where rules decide. Its attributes are made anew in those of r, which
// has none or the keys of the known path.
func (c *call) native(r *policy.Request, k *known, entries []ratelimitconfig.Entry, hits int64) {
	r.Protocol, r.Host, r.Cost = protocol, c.q.domain, hits
	r.Client, r.Named, r.Context = netip.Addr{}, nil, nil // nothing else is ever set
	if r.Path = k.path; !k.is(entries) {
		c.nativeAnew(r, k, entries)
	}
	at := len(r.Path)
	for i := len(entries) - 1; i >= 0; i-- { // the first of several with a key counts
		e := &entries[i]
		at -= len(e.Key)
		r.Attributes[r.Path[at:at+len(e.Key)]] = e.Value
		at -= len("/")
	}
	for i := range entries {
		if r.Client = rlqsapi.ClientOf(entries[i].Key, entries[i].Value); r.Client.IsValid() {
			break
		}
	}
}

// nativeAnew makes the path of a request, which is not the known one. Its attributes are empty.
func (c *call) nativeAnew(r *policy.Request, k *known, entries []ratelimitconfig.Entry) {
	clear(r.Attributes)
	if r.Attributes == nil {
		r.Attributes = make(map[string]string, len(entries))
	}
	length := 0
	for i := range entries {
		length += len("/") + len(entries[i].Key)
	}
	t := &c.texts
	t.room(length)
	from := len(t.b)
	for i := range entries {
		t.b = append(append(t.b, '/'), entries[i].Key...)
	}
	r.Path = t.since(from)
	k.path = ""
	if k.others++; k.others >= adoptEvery && length <= maxKnown && strings.Count(r.Path, "/") == len(entries) {
		*k = known{path: strings.Clone(r.Path), entries: len(entries)}
		r.Path = k.path
	}
}

// maxKnown is how long a known path may be.
const maxKnown = 256
