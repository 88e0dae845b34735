package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// TestRefusalsSurviveUnreadBodies: a client that asks for the connection to be closed gets the answer, although the proxy does
// not read the body that it has sent. A connection that is closed with a body unread is reset.
func TestRefusalsSurviveUnreadBodies(t *testing.T) {
	const size = 200 << 10
	for status, change := range map[int]func(*proxy.Options){
		http.StatusTooManyRequests:       func(o *proxy.Options) { o.Engine = limit(t, 1) },
		http.StatusRequestEntityTooLarge: func(o *proxy.Options) { o.MaxBody = 1 },
	} {
		p := start(t, upstream(t, ok), change)
		p.get(t, "/")
		for _, head := range []string{"HTTP/1.1\r\nConnection: close", "HTTP/1.0"} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			if err = conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			// All of it at once, as the proxy waits only for a while for a client that has not sent its body.
			sent := fmt.Sprintf("POST / %s\r\nHost: example.test\r\nContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat("x", size))
			if _, err = io.WriteString(conn, sent); err != nil {
				t.Errorf("%d, %q: %v while sending", status, head, err)
			}
			reader := bufio.NewReader(conn)
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Errorf("%d, %q: %v", status, head, err)
				_ = conn.Close()
				continue
			}
			if _, err = io.ReadAll(res.Body); err != nil || res.StatusCode != status {
				t.Errorf("%d, %q: %s, %v", status, head, res.Status, err)
			}
			if _, err = reader.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("%d, %q: after the answer: %v, want the end of the connection", status, head, err)
			}
			_ = res.Body.Close()
			_ = conn.Close()
		}
	}
}
