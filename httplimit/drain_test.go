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
	"net/http/httptrace"
	"strings"
	"sync"
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

// patient is a ResponseWriter whose read deadlines are later than they are said to be, so that a client of this process may be
// held up by others.
type patient struct {
	http.ResponseWriter

	t testing.TB
}

func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p patient) SetReadDeadline(at time.Time) error {
	if left := time.Until(at); left > time.Second {
		p.t.Errorf("the body is read for %v", left)
	}
	return http.NewResponseController(p.ResponseWriter).SetReadDeadline(at.Add(2 * time.Minute))
}

// TestRefusalsSurviveUnreadBodies: a client that asks for the connection to be closed gets the answer, although the handler does
// not read the body that it has sent. A connection that is closed with bytes unread is reset.
func TestRefusalsSurviveUnreadBodies(t *testing.T) {
	const size = 200 << 10
	refused := refusing(t, limited, httplimit.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused.ServeHTTP(patient{w, t}, r)
	}))
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

// TestDrainIsBounded has clients that send no body: they have their answer, and the handler ends.
func TestDrainIsBounded(t *testing.T) {
	ended := make(chan time.Duration, 1)
	refused := refusing(t, limited, httplimit.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		refused.ServeHTTP(w, r)
		ended <- time.Since(start)
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		more  string
		least time.Duration
	}{
		"a body that does not come":  {"", 400 * time.Millisecond},
		"100 Continue is waited for": {"Expect: 100-continue\r\n", 0},
	} {
		head := "POST / HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\nContent-Length: 100\r\n" + c.more + "\r\n"
		status, text, err := post(t, server, head, http.NoBody)
		if err != nil || status != http.StatusTooManyRequests || !strings.Contains(text, "quota-exceeded") {
			t.Errorf("%s: status %d, %q, %v", name, status, text, err)
		}
		if took := <-ended; took < c.least {
			t.Errorf("%s: the handler took %v", name, took)
		}
	}
}

// TestDrainOfABodyWithoutAnEnd: the client has its answer, and the handler ends. That waits here until the client has read it:
// net/http resets the connection half a second later, as there is more to read.
func TestDrainOfABodyWithoutAnEnd(t *testing.T) {
	drained, answered := make(chan int), make(chan struct{})
	refused := refusing(t, limited, httplimit.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &countingBody{ReadCloser: r.Body}
		r.Body = body
		refused.ServeHTTP(patient{w, t}, r)
		drained <- body.n
		<-answered
	}))
	defer server.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const head = "POST / HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\nContent-Length: 68719476736\r\n\r\n"
	release := sync.OnceFunc(func() { close(answered) })
	defer release()
	var sender sync.WaitGroup
	sender.Go(func() { _, _ = conn.Write(append([]byte(head), bytes.Repeat([]byte("x"), 300<<10)...)) })
	if n := <-drained; n > 256<<10+1 {
		t.Errorf("%d bytes were read", n)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "quota-exceeded") {
		t.Errorf("status %d, %q, %v", resp.StatusCode, text, err)
	}
	release()
	_ = conn.Close()
	sender.Wait()
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

// TestRefusedConnectionsAreKept: a body that comes in time is read, and the connection is used again.
func TestRefusedConnectionsAreKept(t *testing.T) {
	server := httptest.NewServer(refusing(t, limited, httplimit.Options{}))
	defer server.Close()
	for i := range 3 {
		var used bool
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { used = i.Reused }}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", 100<<10)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Close || used != (i > 0) {
			t.Errorf("status %d, close %t, used again %t, %v", resp.StatusCode, resp.Close, used, err)
		}
		_ = resp.Body.Close()
	}
}

// ends notes how the server ends each connection: "write" where it says first that there is nothing more to come.
type ends struct {
	net.Listener

	how chan string
}

func (e ends) Accept() (net.Conn, error) {
	conn, err := e.Listener.Accept()
	return &endingConn{Conn: conn, how: e.how}, err
}

type endingConn struct {
	net.Conn

	once sync.Once
	how  chan string
}

func (c *endingConn) CloseWrite() error {
	c.once.Do(func() { c.how <- "write" })
	half, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

func (c *endingConn) Close() error {
	c.once.Do(func() { c.how <- "at once" })
	return c.Conn.Close()
}

// TestBodiesThatDoNotEnd: a refused client that goes on sending, or stops in the middle, has its answer and loses its connection.
// So that it gets the answer, the server does not close a connection at once over which more may come.
func TestBodiesThatDoNotEnd(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: example.test\r\n"
	const long = "Content-Length: 68719476736\r\n\r\n"
	much := strings.Repeat("x", 256<<10+1)
	refused := refusing(t, limited, httplimit.Options{})
	for name, c := range map[string]struct{ sent, how string }{
		"a length":              {head + "Content-Length: 100\r\n\r\nx", "write"},
		"chunks":                {head + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "write"},
		"too long":              {head + long + much, "write"},
		"too long, then closed": {head + "Connection: close\r\n" + long + much, "write"},
		"100 Continue":          {head + "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n", "at once"},
		"100 Continue, chunks":  {head + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n", "at once"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				refused.ServeHTTP(wrapper{w}, r)
			}))
			how := make(chan string, 1)
			server.Listener = ends{server.Listener, how}
			server.Start()
			defer server.Close()
			status, text, err := post(t, server, c.sent, http.NoBody)
			if err != nil || status != http.StatusTooManyRequests || !strings.Contains(text, "quota-exceeded") {
				t.Errorf("status %d, %q, %v", status, text, err)
			}
			if got := <-how; got != c.how {
				t.Errorf("the connection ends by %q, want %q", got, c.how)
			}
		})
	}
}

// wrapper is a ResponseWriter as middlewares have it.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }
