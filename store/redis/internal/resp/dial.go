package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/respclient"
)

// Login is how a connection to a server begins.
type Login struct {
	// Unix is set if addresses are paths of sockets.
	Unix bool
	// TLS is nil for a connection without it.
	TLS *tls.Config
	// Username may be empty, for the user that is named default. Without Password there is no login.
	Username, Password string
	// Name is how the server lists the connection.
	Name string
	DB   int
	// Old asks for the older version of the protocol, which is otherwise used if the server does not know the newer one.
	Old bool
}

// Dial connects and logs in until a time, or until the context ends.
func (l *Login) Dial(ctx context.Context, address string, until time.Time) (*Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	network := "tcp"
	if l.Unix {
		network = "unix"
	}
	d := &net.Dialer{KeepAlive: time.Second}
	var conn net.Conn
	var err error
	if l.TLS != nil {
		conn, err = (&tls.Dialer{NetDialer: d, Config: l.TLS}).DialContext(ctx, network, address)
	} else {
		conn, err = d.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := newConn(conn)
	err = l.login(c, until)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func (l *Login) login(c *Conn, until time.Time) error {
	var err error
	if !l.Old {
		err = l.hello(c, until)
	}
	if l.Old || isOld(err) {
		err = l.loginOld(c, until)
	}
	if err != nil {
		return err
	}
	if l.DB != 0 {
		if _, err := c.Ask(until, "SELECT", strconv.Itoa(l.DB)); err != nil {
			return fmt.Errorf("database %d: %w", l.DB, err)
		}
	}
	return nil
}

// hello logs in by the newer version of the protocol.
func (l *Login) hello(c *Conn, until time.Time) error {
	hello := []string{"HELLO", "3"}
	if l.Password != "" || l.Username != "" {
		user := l.Username
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, l.Password)
	}
	if l.Name != "" {
		hello = append(hello, "SETNAME", l.Name)
	}
	_, err := c.Ask(until, hello...)
	return err
}

// isOld reports whether an error says that a server knows only the older version.
func isOld(err error) bool {
	var e respclient.Error
	return errors.As(err, &e) &&
		(strings.HasPrefix(string(e), "NOPROTO") || strings.Contains(strings.ToLower(string(e)), "unknown command"))
}

func (l *Login) loginOld(c *Conn, until time.Time) error {
	var err error
	switch {
	case l.Username != "":
		_, err = c.Ask(until, "AUTH", l.Username, l.Password)
	case l.Password != "":
		_, err = c.Ask(until, "AUTH", l.Password)
	}
	if err != nil || l.Name == "" {
		return err
	}
	_, err = c.Ask(until, "CLIENT", "SETNAME", l.Name)
	return err
}

// Ask sends one command and reads its reply. An error that is replied is returned as a [respclient.Error].
func (c *Conn) Ask(until time.Time, command ...string) (respclient.Reply, error) {
	c.Command(command...)
	if err := c.Send(until); err != nil {
		return respclient.Reply{}, err
	}
	r, err := c.Receive()
	if err == nil {
		err = r.Err()
	}
	return r, err
}
