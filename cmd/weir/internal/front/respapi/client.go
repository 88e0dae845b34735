package respapi

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// clientInfo is what a client has told of itself. It does not change: another one takes its place.
type clientInfo struct {
	name, library, version string
}

var nameless clientInfo

// mostOfName is how long a name may be.
const mostOfName = 256

// isName reports whether a client may be called so: in lists a name must be one word.
func isName(b []byte) bool {
	return len(b) <= mostOfName && !bytes.ContainsFunc(b, func(r rune) bool { return r < '!' || r > '~' })
}

func badName(what string) string {
	return "ERR " + what + " cannot contain spaces, newlines or special characters, or be longer than " +
		strconv.Itoa(mostOfName) + "."
}

func (c *conn) setName(name []byte) {
	info := *c.info.Load()
	info.name = string(name)
	c.info.Store(&info)
}

func clientSubcommands() []spec {
	ok := answers((*resp.Writer).OK)
	return []spec{
		{
			"caching", 3, 0, 0, "YES|NO", "Is refused: there is nothing that a client may keep", answers(func(w *resp.Writer) {
				w.Error("ERR CLIENT CACHING is not supported: no reply of weir may be kept. Turn client-side caching off")
			}),
		},
		{"capa", -3, 0, 0, "capability [capability ...]", "Is accepted, and changes nothing", ok},
		{"getname", 2, 0, 0, "", "Answers the name of the connection", clientGetName},
		{"getredir", 2, 0, 0, "", "Answers -1: nothing is tracked", answers(func(w *resp.Writer) { w.Int(-1) })},
		{"id", 2, 0, 0, "", "Answers the number of the connection", func(c *conn, w *resp.Writer, _ [][]byte) { w.Int(c.id) }},
		{
			"info", 2, 0, 0, "", "Tells of this connection",
			func(c *conn, w *resp.Writer, _ [][]byte) { w.Text(c.describe(time.Now()) + "\n") },
		},
		{"list", -2, admin, 0, "[ID client-id [client-id ...]]", "Tells of all connections", clientList},
		{"no-evict", 3, 0, 0, "ON|OFF", "Is accepted, and changes nothing: no connection is closed to save memory", onOff},
		{"no-touch", 3, 0, 0, "ON|OFF", "Is accepted, and changes nothing: nothing depends on when a key was read", onOff},
		{"reply", 3, 0, 0, "ON|OFF|SKIP", "Sets whether the client wants replies", clientReply},
		{"setinfo", 4, 0, 0, "LIB-NAME|LIB-VER value", "Tells the library of the client", clientSetInfo},
		{"setname", 3, 0, 0, "connection-name", "Names the connection", clientSetName},
		{
			"tracking", -3, 0, 0, "ON|OFF [OPTIN]",
			"Is accepted with OPTIN, as nothing that weir answers may be kept, and refused otherwise", clientTracking,
		},
	}
}

func onOff(_ *conn, w *resp.Writer, args [][]byte) {
	if !equalFold(args[2], "on") && !equalFold(args[2], "off") {
		w.Error("ERR syntax error")
		return
	}
	w.OK()
}

func clientGetName(c *conn, w *resp.Writer, _ [][]byte) {
	name := c.info.Load().name
	if name == "" {
		w.Null()
		return
	}
	w.BulkString(name)
}

func clientSetName(c *conn, w *resp.Writer, args [][]byte) {
	if !isName(args[2]) {
		w.Error(badName("Client names"))
		return
	}
	c.setName(args[2])
	w.OK()
}

func clientSetInfo(c *conn, w *resp.Writer, args [][]byte) {
	info := *c.info.Load()
	switch {
	case !equalFold(args[2], "lib-name") && !equalFold(args[2], "lib-ver"):
		w.Error("ERR Unrecognized option '" + clip(args[2]) + "'")
		return
	case !isName(args[3]):
		w.Error(badName(strings.ToLower(string(args[2]))))
		return
	case equalFold(args[2], "lib-name"):
		info.library = string(args[3])
	default:
		info.version = string(args[3])
	}
	c.info.Store(&info)
	w.OK()
}

func clientReply(c *conn, w *resp.Writer, args [][]byte) {
	m := &c.mute
	switch {
	case equalFold(args[2], "on"):
		*m = mute{}
		w.OK()
	case equalFold(args[2], "off"):
		m.off, m.any = true, true
	case equalFold(args[2], "skip"):
		m.skipNext, m.any = true, true
	default:
		w.Error("ERR syntax error")
	}
}

// clientTracking accepts what asks for no messages so long as CLIENT CACHING is not called: some libraries open every connection
// with it.
func clientTracking(_ *conn, w *resp.Writer, args [][]byte) {
	switch {
	case len(args) == 3 && equalFold(args[2], "off"):
		w.OK()
	case len(args) == 4 && equalFold(args[2], "on") && equalFold(args[3], "optin"):
		w.OK()
	case !equalFold(args[2], "on") && !equalFold(args[2], "off"):
		w.Error("ERR syntax error")
	default:
		w.Error("ERR CLIENT TRACKING is not supported but with OPTIN: no reply of weir may be kept. Turn client-side caching off")
	}
}

func clientList(c *conn, w *resp.Writer, args [][]byte) {
	all := c.s.clients()
	switch {
	case len(args) == 2:
	case len(args) == 4 && equalFold(args[2], "type"):
		switch strings.ToLower(string(args[3])) {
		case "normal": // as they all are
		case "master", "replica", "slave", "pubsub":
			all = nil
		default:
			w.Error("ERR Unknown client type '" + clip(args[3]) + "'")
			return
		}
	case len(args) > 3 && equalFold(args[2], "id"):
		wanted := make(map[int64]bool)
		for _, a := range args[3:] {
			id, err := strconv.ParseInt(string(a), 10, 64)
			if err != nil {
				w.Error("ERR Invalid client ID")
				return
			}
			wanted[id] = true
		}
		all = slices.DeleteFunc(all, func(c *conn) bool { return !wanted[c.id] })
	default:
		w.Error("ERR syntax error")
		return
	}
	size := 0
	for _, one := range all {
		size += one.describedBy()
	}
	if !c.mayOwe(size) {
		return
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	now := time.Now()
	var b strings.Builder
	for _, one := range all {
		b.WriteString(one.describe(now))
		b.WriteByte('\n')
	}
	w.Text(b.String())
}

// describedBy is how many bytes describe returns at most.
func (c *conn) describedBy() int {
	const others = 256
	info := c.info.Load()
	return others + len(info.name) + len(info.library) + len(info.version)
}

// describe is a line about the connection. Any goroutine may ask.
func (c *conn) describe(now time.Time) string {
	info := c.info.Load()
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d flags=N db=0 user=default lib-name=%s lib-ver=%s",
		c.id, c.plain.RemoteAddr(), c.plain.LocalAddr(), info.name, int64(now.Sub(c.created).Seconds()),
		info.library, info.version)
}
