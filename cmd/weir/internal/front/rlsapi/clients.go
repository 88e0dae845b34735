package rlsapi

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// clients bounds how many are connected.
type clients struct {
	most    int64
	log     *slog.Logger
	open    atomic.Int64
	refused atomic.Uint64
	told    atomic.Int64 // when it was told last that some were refused, in seconds
}

func newClients(most int, log *slog.Logger) *clients { return &clients{most: int64(most), log: log} }

func (c *clients) counts() (open int64, refused uint64) { return c.open.Load(), c.refused.Load() }

func (c *clients) on(l net.Listener) net.Listener { return &bounded{l, c} }

// bounded is a listener that closes connections which are too many.
type bounded struct {
	net.Listener

	clients *clients
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := b.clients; c.open.Add(1) > c.most {
			c.open.Add(-1)
			c.refuse(conn)
			continue
		}
		return &counted{Conn: conn, clients: b.clients}, nil
	}
}

func (c *clients) refuse(conn net.Conn) {
	n := c.refused.Add(1)
	_ = conn.Close() // nothing was said yet
	now, last := time.Now().Unix(), c.told.Load()
	if now-last >= 60 && c.told.CompareAndSwap(last, now) {
		c.log.Warn("too many gRPC clients: a connection was closed", "client", conn.RemoteAddr().String(), "most", c.most,
			"closed_in_all", n)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn

	clients *clients
	once    sync.Once
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.once.Do(func() { c.clients.open.Add(-1) })
	return c.Conn.Close()
}
