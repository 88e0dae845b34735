package proxy

import (
	"net"
	"net/http"
	"strings"
	"sync"
)

// upgradeOf is the protocol that a header asks or agrees to switch to, empty if none.
func upgradeOf(h http.Header) string {
	for _, field := range h["Connection"] {
		for token := range strings.SplitSeq(field, ",") {
			if strings.EqualFold(strings.Trim(token, " \t"), "upgrade") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}

// isHTTP reports whether one of several protocols is a later HTTP or HTTP over TLS, as a stream of requests.
func isHTTP(protocols string) bool {
	for protocol := range strings.SplitSeq(protocols, ",") {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(protocol)), "/")
		switch name {
		case "h2c", "h2", "http", "tls":
			return true
		}
	}
	return false
}

// upgrades are the connections to clients that have left HTTP. The server does not know them any more.
type upgrades struct {
	mu     sync.Mutex
	conns  map[*exchange]net.Conn
	closed bool
}

func (u *upgrades) add(x *exchange, conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		_ = conn.Close()
	}
	if u.conns == nil {
		u.conns = make(map[*exchange]net.Conn)
	}
	u.conns[x] = conn
}

func (u *upgrades) remove(x *exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, x)
}

func (u *upgrades) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

// close closes all connections and those that come later, which ends their exchanges.
func (u *upgrades) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, conn := range u.conns {
		_ = conn.Close()
	}
}
