package front

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

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

// askForKeys is the record by which a client of TLS 1.3 asks for new keys, as the first after its handshake. The keys are those
// that it has logged.
func askForKeys(t *testing.T, logged []byte) []byte {
	t.Helper()
	found := regexp.MustCompile(`CLIENT_TRAFFIC_SECRET_0 \S+ (\S+)`).FindSubmatch(logged)
	if found == nil {
		t.Fatalf("no keys: %s", logged)
	}
	secret, err := hex.DecodeString(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	expand := func(label string, n int) []byte {
		info := append([]byte{0, byte(n), byte(len("tls13 " + label))}, "tls13 "+label...)
		key, wrong := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
		if wrong != nil {
			t.Fatal(wrong)
		}
		return key
	}
	block, err := aes.NewCipher(expand("key", 16))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	const handshake, keyUpdate, requested = 22, 24, 1
	message := []byte{keyUpdate, 0, 0, 1, requested, handshake}
	head := []byte{23, 3, 3, 0, byte(len(message) + seal.Overhead())}
	return seal.Seal(head, expand("iv", 12), message, head)
}

// TestNoReadWaitsForWhatIsNotTaken has a client that asks for new keys and takes none: the read that has them sent ends in time.
func TestNoReadWaitsForWhatIsNotTaken(t *testing.T) {
	one, now := fronttest.SelfSigned(t, "one"), time.Now()
	synctest.Test(t, func(t *testing.T) {
		server := NewTLS(&tls.Config{
			Certificates: []tls.Certificate{one.Pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		})
		here, there := net.Pipe()
		defer here.Close()
		ended, took := make(chan error, 1), time.Duration(0)
		go func() {
			defer there.Close()
			secure, err := server.Handshake(t.Context(), there)
			if err == nil {
				begun := time.Now()
				_ = secure.SetReadDeadline(begun.Add(readTimeout))
				_, err = secure.Read(make([]byte, 1))
				took = time.Since(begun)
			}
			ended <- err
		}()
		var keys bytes.Buffer
		client := tls.Client(here, &tls.Config{
			RootCAs: one.Pool, ServerName: "one", MinVersion: tls.VersionTLS13, KeyLogWriter: &keys,
			Time: func() time.Time { return now }, // at which the certificate is valid
		})
		if err := client.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			t.Log("nothing is shown where AES is slow: TLS has chosen another cipher")
			return
		}
		if _, err := here.Write(askForKeys(t, keys.Bytes())); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || took != readTimeout {
			t.Errorf("the read has ended after %v with %v", took, err)
		}
	})
}

// TestWritesEndByADeadline has a connection whose client takes nothing for a minute.
func TestWritesEndByADeadline(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for name, c := range map[string]struct {
		set  func(c *handshakeConn)
		want time.Duration // until the write ends in vain, 0 if it does not
	}{
		"none":                   {func(*handshakeConn) {}, 0},
		"of reads":               {func(c *handshakeConn) { _ = c.SetReadDeadline(at(30 * time.Second)) }, 30 * time.Second},
		"of reads, nearly over":  {func(c *handshakeConn) { _ = c.SetReadDeadline(at(time.Millisecond)) }, leastWrite},
		"of reads, over":         {func(c *handshakeConn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }, leastWrite},
		"of reads, none anymore": {func(c *handshakeConn) { _ = errors.Join(c.SetReadDeadline(at(1)), c.SetReadDeadline(time.Time{})) }, 0},
		"of its own": {func(c *handshakeConn) {
			_ = errors.Join(c.SetWriteDeadline(at(time.Hour)), c.SetReadDeadline(at(time.Second)))
		}, 0},
		"of both": {func(c *handshakeConn) { _ = c.SetDeadline(at(10 * time.Second)) }, 10 * time.Second},
		"of reads again": {func(c *handshakeConn) {
			_ = errors.Join(c.SetDeadline(at(10*time.Second)), c.SetWriteDeadline(time.Time{}), c.SetReadDeadline(at(20*time.Second)))
		}, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			conn := (&TLS{}).count(there)
			defer time.AfterFunc(time.Minute, func() { _, _ = here.Read(make([]byte, 1)) }).Stop()
			begun := time.Now()
			c.set(conn)
			_, err := conn.Write([]byte("x"))
			took := time.Since(begun)
			if late := errors.Is(err, os.ErrDeadlineExceeded); late != (c.want > 0) || late && took != c.want {
				t.Errorf("%s: the write has ended after %v with %v", name, took, err)
			}
			_ = errors.Join(conn.Close(), here.Close())
		})
	}
}
