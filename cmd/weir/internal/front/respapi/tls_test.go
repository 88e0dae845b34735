package respapi_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
)

func TestTLS(t *testing.T) {
	own := fronttest.SelfSigned(t, "weir")
	s := start(t, func(o *respapi.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS12}
		o.ReadTimeout = time.Minute
	})
	c := s.dialTLS(&tls.Config{RootCAs: own.Pool, MinVersion: tls.VersionTLS12})
	for range 3 {
		c.expect("+PONG", "PING")
	}
	long := strings.Repeat("x", 60_000)
	c.expect("$"+long, "ECHO", long)
	c.send(strings.Repeat("PING 12345678901234567890\r\n", 10_000))
	for range 10_000 {
		if got := c.receive(); got != "$12345678901234567890" {
			t.Fatal(got)
		}
	}
	c.send("*1\r")
	c.send("\n$4\r\nPI")
	c.send("NG\r\n")
	if got := c.receive(); got != "+PONG" {
		t.Error(got)
	}

	plain := s.dial()
	plain.send("PING\r\n")
	if got := plain.receive(); got != "-ERR Protocol error: this port wants TLS" {
		t.Error(got)
	}
	plain.expectEnd()

	last := s.dialTLS(&tls.Config{RootCAs: own.Pool, MinVersion: tls.VersionTLS12})
	last.expect("+OK", "QUIT")
	last.expectEnd()
	s.stop()
	c.expectEnd()
}

// TestTLSWhereThereIsNone: a client that wants TLS is told at once that there is none.
func TestTLSWhereThereIsNone(t *testing.T) {
	s := start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	if _, err := d.DialContext(ctx, "tcp", s.address); err == nil || ctx.Err() != nil {
		t.Error(err, ctx.Err())
	}
}
