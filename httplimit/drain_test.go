package httplimit_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/httplimit"
)

// post sends a request with a body to a server, all of it before the answer is read. The connection stays open until the
// end of the test. After the answer it must come to its end, and not be reset.
func post(t *testing.T, server *httptest.Server, head string, body io.Reader) (status int, text string, err error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err = conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err = io.WriteString(conn, head); err != nil {
		return 0, "", err
	}
	if _, err = io.Copy(conn, body); err != nil {
		return 0, "", err
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(all), err
	}
	if _, err = reader.ReadByte(); errors.Is(err, io.EOF) {
		err = nil
	}
	return resp.StatusCode, string(all), err
}

// TestRefusalsSurviveUnreadBodies: a client that asks for the connection to be closed gets the answer, although nobody wants
// the body that it has sent. A connection that is closed with bytes unread is reset.
func TestRefusalsSurviveUnreadBodies(t *testing.T) {
	const size = 200 << 10
	refused := refusing(t, limited, httplimit.Options{})
	server := httptest.NewServer(refused)
	defer server.Close()
	for _, head := range []string{
		"POST / HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
		"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n",
	} {
		for range 5 {
			status, text, err := post(t, server, fmt.Sprintf(head, size), strings.NewReader(strings.Repeat("x", size)))
			if err != nil || status != http.StatusTooManyRequests || !strings.Contains(text, "quota-exceeded") {
				t.Errorf("%q: status %d, %q, %v", head, status, text, err)
			}
		}
	}
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, strings.Repeat("x", size))
	head := "POST / HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
	if status, text, err := post(t, server, head, strings.NewReader(chunked)); err != nil || status != http.StatusTooManyRequests {
		t.Errorf("chunked: status %d, %q, %v", status, text, err)
	}
}

// TestDrainIsBounded has clients that send no body, or one without an end: both have their answer, and the handler ends.
func TestDrainIsBounded(t *testing.T) {
	ended := make(chan time.Duration, 1)
	refused := refusing(t, limited, httplimit.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted := &countingBody{ReadCloser: r.Body}
		r.Body = counted
		start := time.Now()
		refused.ServeHTTP(w, r)
		if counted.n > 256<<10+1 {
			t.Errorf("%d bytes were read", counted.n)
		}
		ended <- time.Since(start)
	}))
	defer server.Close()
	const head = "POST / HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n"
	for name, c := range map[string]struct {
		length int
		more   string
		body   []byte
		least  time.Duration
	}{
		"a body that does not come":  {100, "", nil, 400 * time.Millisecond},
		"a body of 64 GiB":           {64 << 30, "", bytes.Repeat([]byte("x"), 300<<10), 0},
		"100 Continue is waited for": {100, "Expect: 100-continue\r\n", nil, 0},
	} {
		status, text, err := post(t, server, fmt.Sprintf(head, c.length, c.more), bytes.NewReader(c.body))
		if err != nil || status != http.StatusTooManyRequests || !strings.Contains(text, "quota-exceeded") {
			t.Errorf("%s: status %d, %q, %v", name, status, text, err)
		}
		if took := <-ended; took < c.least {
			t.Errorf("%s: the handler took %v", name, took)
		}
	}
}

type countingBody struct {
	io.ReadCloser

	n int
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += n
	return n, err
}

// TestDrainNeedsADeadline: what cannot have one is not read, as it could take for ever.
func TestDrainNeedsADeadline(t *testing.T) {
	body := &countingBody{ReadCloser: io.NopCloser(strings.NewReader("body"))}
	r := request(http.MethodPost, "/")
	r.Body, r.ContentLength, r.Close = body, 4, true
	httplimit.Drain(httptest.NewRecorder(), r)
	if body.n != 0 {
		t.Errorf("%d bytes were read", body.n)
	}
}

// TestKeptConnectionsAreNotDrained: the server reads the body itself, and the connection is used again.
func TestKeptConnectionsAreNotDrained(t *testing.T) {
	server := httptest.NewServer(refusing(t, limited, httplimit.Options{}))
	defer server.Close()
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", 100<<10)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Close {
			t.Errorf("status %d, close %t, %v", resp.StatusCode, resp.Close, err)
		}
		_ = resp.Body.Close()
	}
}
