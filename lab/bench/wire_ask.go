package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// respClient asks a server of RESP, one command or a bunch of them after the other.
type respClient struct {
	c   net.Conn
	in  []byte
	out []byte
}

func dialRESP(ctx context.Context, address string) (*respClient, error) {
	c, err := (&net.Dialer{Timeout: serverPatience}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &respClient{c: c}, nil
}

// close ends the connection at once, so that none of many is left waiting.
func (r *respClient) close() {
	if t, ok := r.c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = r.c.Close()
}

// send sends commands, and hands the replies, as many as there were commands, to check one after the other.
func (r *respClient) send(commands []byte, replies int, check func(reply []byte) error) error {
	if err := r.c.SetDeadline(time.Now().Add(serverPatience)); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if _, err := r.c.Write(commands); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if r.in == nil {
		r.in = make([]byte, 0, 256) //nolint:mnd // enough for one reply
	}
	r.in = r.in[:0]
	at := 0
	for replies > 0 {
		n, err := replyEnd(r.in[at:])
		if err != nil {
			return err
		}
		if n > 0 {
			if wrong := check(r.in[at : at+n]); wrong != nil {
				return wrong
			}
			at += n
			replies--
			continue
		}
		r.in = r.in[:copy(r.in, r.in[at:])]
		at = 0
		if len(r.in) == cap(r.in) {
			r.in = append(make([]byte, 0, 2*cap(r.in)), r.in...)
		}
		n, err = r.c.Read(r.in[len(r.in):cap(r.in)])
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		r.in = r.in[:len(r.in)+n]
	}
	return nil
}

// askRESP returns what a server replies to a command, as it is on the wire.
func askRESP(ctx context.Context, address string, args ...string) (reply []byte, err error) {
	r, err := dialRESP(ctx, address)
	if err != nil {
		return nil, err
	}
	defer r.close()
	err = r.send(appendCommand(nil, args...), 1, func(b []byte) error { reply = bytes.Clone(b); return nil })
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return reply, err
}

// usedMemory is what a server says in INFO that it uses.
func usedMemory(ctx context.Context, address string) (int64, error) {
	reply, err := askRESP(ctx, address, "INFO", "memory")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(between(string(reply), "used_memory:", "\r"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bench: the server says of its memory %q: %w", reply, err)
	}
	return n, nil
}

// wireBatch is how many commands are sent at once to fill a server.
const wireBatch = 256

// fill sends a command about each of so many keys, and checks the replies by how they begin.
func fillRESP(ctx context.Context, address string, keys int, prefix string, command func(key string) []string) error {
	r, err := dialRESP(ctx, address)
	if err != nil {
		return err
	}
	defer r.close()
	check := func(reply []byte) error {
		if !strings.HasPrefix(string(reply), prefix) {
			return fmt.Errorf("bench: a server that is filled replies %q", reply)
		}
		return nil
	}
	for from := 0; from < keys; from += wireBatch {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(wireBatch, keys-from)
		r.out = r.out[:0]
		for i := range n {
			r.out = appendCommand(r.out, command(wireKey+strconv.Itoa(from+i))...)
		}
		if err := r.send(r.out, n, check); err != nil {
			return err
		}
	}
	return nil
}

// askHTTP posts JSON, and returns the body of the answer and those fields of its header that are not made anew for each.
func askHTTP(ctx context.Context, url, body string) (reply []byte, header http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	defer a.Body.Close() //nolint:errcheck // it was read
	if reply, err = io.ReadAll(a.Body); err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	if a.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("bench: %s answers %s: %s", url, a.Status, reply)
	}
	for _, name := range []string{"Date", "Content-Length", "Connection"} {
		a.Header.Del(name)
	}
	return reply, a.Header, nil
}
