package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// partOfHello is a first message of so many bytes, but for the last one.
func partOfHello(n int) []byte {
	const record, head = 16 << 10, 4
	message := make([]byte, n)
	copy(message, []byte{1, byte((n - head + 1) >> 16), byte((n - head + 1) >> 8), byte(n - head + 1)})
	var all []byte
	for len(message) > 0 {
		part := message[:min(record, len(message))]
		all = append(all, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		all = append(all, part...)
		message = message[len(part):]
	}
	return all
}

// TestLongHandshakesShareRoom has clients that send most of a first message. Beyond what each may have they have the room of all;
// one too many ends, and its place is for others.
func TestLongHandshakesShareRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewTLS(&tls.Config{Certificates: []tls.Certificate{fronttest.SelfSigned(t, "one").Pair}, MinVersion: tls.VersionTLS12})
		sent := partOfHello(60_000)
		server.room.Max = 3 * (int64(len(sent)) - server.own)
		var clients []net.Conn
		greet := func() (failed chan error) {
			here, there := net.Pipe()
			clients = append(clients, here)
			failed = make(chan error, 1)
			go func() {
				_, err := server.Handshake(t.Context(), there)
				failed <- err
				_ = there.Close() // the client may have gone
			}()
			return failed
		}
		for i := range 3 {
			greet()
			if _, err := clients[i].Write(sent); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := server.room.Bytes(); got != server.room.Max {
			t.Errorf("%d bytes are counted, want %d", got, server.room.Max)
		}
		failed := greet()
		if _, err := clients[3].Write(sent); err == nil {
			t.Error("a fourth client could send all")
		}
		if err := <-failed; !errors.Is(err, errHandshake) {
			t.Errorf("its handshake ended with %v", err)
		}
		greet() // what is short needs no room
		if _, err := clients[4].Write(partOfHello(16_000)); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			_ = c.Close()
		}
		synctest.Wait()
		if got := server.room.Bytes(); got != 0 {
			t.Errorf("%d bytes are counted when all have gone", got)
		}
	})
}

// TestHandshakesThatAreCompleteHaveNoBound has a client with many certificates. When it is let in nothing is counted any more.
func TestHandshakesThatAreCompleteHaveNoBound(t *testing.T) {
	one := fronttest.SelfSigned(t, "one")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{
			Certificates: []tls.Certificate{one.Pair}, MinVersion: version, MaxVersion: version,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: one.Pool,
		}
		server := NewTLS(&tls.Config{MinVersion: version, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return config, nil
		}})
		many := one.Pair
		for len(many.Certificate) < 100 {
			many.Certificate = append(many.Certificate, one.Pair.Certificate[0])
		}
		here, there := net.Pipe()
		var most int64
		done := make(chan error, 1)
		go func() {
			secure, err := server.Handshake(context.Background(), there)
			most = server.room.Bytes()
			if err == nil {
				_, err = io.ReadFull(secure, make([]byte, 100_000))
				err = errors.Join(err, secure.Close())
			}
			done <- err
		}()
		client := tls.Client(here, &tls.Config{
			RootCAs: one.Pool, ServerName: "one", Certificates: []tls.Certificate{many}, MinVersion: version,
		})
		if _, err := client.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }() // tickets, and the end
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := server.room.Bytes(); got != 0 || most == 0 {
			t.Errorf("version %x: %d bytes are counted after the handshake, and %d before its end", version, got, most)
		}
	}
}
