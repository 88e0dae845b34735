package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// TestPartsOfAResponseArriveBeforeItsEnd has an upstream that sends each part only once the client has the one before.
func TestPartsOfAResponseArriveBeforeItsEnd(t *testing.T) {
	const parts = 5
	for _, c := range []struct {
		name   string
		header http.Header
	}{
		{"text/event-stream", http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}},
		{"text/event-stream of known length", http.Header{"Content-Type": {"text/event-stream"}, "Content-Length": {strconv.Itoa(parts * 8)}}},
		{"unknown length", http.Header{"Content-Type": {"application/json"}}},
		{"known length", http.Header{"Content-Type": {"text/plain"}, "Content-Length": {strconv.Itoa(parts * 8)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrived := make(chan struct{})
			p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
				maps.Copy(w.Header(), c.header)
				flush := http.NewResponseController(w).Flush
				for i := range parts {
					fmt.Fprintf(w, "data: %d\n", i)
					_ = flush()
					select {
					case <-arrived:
					case <-r.Context().Done():
						return
					}
				}
			}), nil)
			res, err := p.client.Do(request(t, http.MethodGet, p.url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			reader := bufio.NewReader(res.Body)
			for i := range parts {
				line, err := reader.ReadString('\n')
				if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
					t.Fatalf("%q %v, want %q", line, err, want)
				}
				arrived <- struct{}{}
			}
			if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil {
				t.Errorf("%q %v after the last part", rest, err)
			}
		})
	}
}

// TestHeaderArrivesBeforeTheBody has an upstream that sends the header of a stream and waits.
func TestHeaderArrivesBeforeTheBody(t *testing.T) {
	goOn := make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		ok(w, r)
	}), nil)
	res, err := p.client.Do(request(t, http.MethodGet, p.url, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	close(goOn)
	if body, err := io.ReadAll(res.Body); string(body) != "ok" || err != nil {
		t.Errorf("%q %v", body, err)
	}
}

// echo is an upstream that sends back what it has read at once.
func echo(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex()
	_ = c.Flush()
	buf := make([]byte, 1<<10)
	for {
		n, err := r.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		_ = c.Flush()
		if err != nil {
			return
		}
	}
}

func TestBodiesAreStreamedBothWaysAtOnce(t *testing.T) {
	for _, length := range []int64{-1, 10 * 8} {
		p := start(t, upstream(t, echo), func(o *proxy.Options) { o.UpstreamTimeout = patience })
		reader, writer := io.Pipe()
		req := request(t, http.MethodPost, p.url, reader)
		req.ContentLength = length
		res, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			sent := fmt.Sprintf("part %2d\n", i)
			if _, err := io.WriteString(writer, sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != sent {
				t.Fatalf("%q %v, want %q", got, err, sent)
			}
		}
		_ = writer.Close()
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("%q %v after the end", rest, err)
		}
		_ = res.Body.Close()
		p.expectTotals(t, proxy.Totals{Allowed: 1})
	}
}

func TestLargeBodies(t *testing.T) {
	p := start(t, upstream(t, echo), func(o *proxy.Options) { o.UpstreamTimeout = patience })
	const size = 8 << 20
	res, err := p.client.Do(request(t, http.MethodPut, p.url, io.LimitReader(letters{}, size)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if n != size || err != nil {
		t.Errorf("%d bytes of %d came back: %v", n, size, err)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a' + byte(i%26)
	}
	return len(p), nil
}

func TestTrailersOfAnswersPassAndThoseOfRequestsDoNot(t *testing.T) {
	trailers := make(chan http.Header, 1)
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		trailers <- r.Trailer
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	}), nil)
	req := request(t, http.MethodPost, p.url, strings.NewReader("body"))
	req.ContentLength = -1
	req.Trailer = http.Header{"X-Checksum": {"3"}, "X-Forwarded-For": {"192.0.2.6"}}
	res := p.do(t, req)
	if want := (http.Header{"X-Announced": {"1"}, "X-Late": {"2"}}); res.body != "body" || !reflect.DeepEqual(res.Trailer, want) {
		t.Errorf("the client got %q, trailers %v, want %v", res.body, res.Trailer, want)
	}
	if got := receive(t, trailers, "the trailers"); len(got) > 0 {
		t.Errorf("the upstream got trailers %v, want none", got)
	}
}

func TestInformationalResponses(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Link", "</script.js>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		ok(w, r)
	}), nil)
	var hints []http.Header
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			hints = append(hints, http.Header(header))
			return nil
		},
	})
	res := p.do(t, request(t, http.MethodGet, p.url, nil).WithContext(ctx))
	if len(hints) != 2 || hints[0].Get("Link") != "</style.css>; rel=preload" || hints[1].Get("Link") != "</script.js>; rel=preload" ||
		len(hints[0]["Ratelimit"]) > 0 {
		t.Errorf("hints %v", hints)
	}
	if res.Header.Get("Link") != "" || res.Header.Get("Ratelimit") == "" || res.body != "ok" {
		t.Errorf("%v %q", res.Header, res.body)
	}
}

// final is the answer after all that say to go on: an upstream that says so after the proxy has lost patience is the second one.
func final(t *testing.T, reader *bufio.Reader) answer {
	t.Helper()
	for {
		if res := read(t, reader); res.StatusCode != http.StatusContinue {
			return res
		}
	}
}

// TestExpectContinue sends a body only once it is asked for.
func TestExpectContinue(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}), func(o *proxy.Options) { o.Engine = limit(t, 2) })
	const head = " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

	_, reader := p.raw(t, "POST /refused"+head)
	if res := final(t, reader); res.StatusCode != http.StatusExpectationFailed {
		t.Errorf("%s, want 417 without the body", res.Status)
	}

	conn, reader := p.raw(t, "POST /"+head)
	if res := read(t, reader); res.StatusCode != http.StatusContinue {
		t.Fatalf("%s, want 100", res.Status)
	}
	_, _ = io.WriteString(conn, "body")
	if res := final(t, reader); res.StatusCode != http.StatusOK || res.body != "body" {
		t.Errorf("%s %q", res.Status, res.body)
	}

	_, reader = p.raw(t, "POST /"+head)
	if res := read(t, reader); res.StatusCode != http.StatusTooManyRequests || !res.Close {
		t.Errorf("%s, want 429 at once, and the connection closed", res.Status)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) { o.MaxBody = 10 })
	for _, c := range []struct {
		size, length int64
		status       int
	}{
		{10, 10, 200},
		{10, -1, 200},
		{11, 11, 413},
		{11, -1, 413},
		{1 << 20, 1 << 20, 413},
		{1 << 20, -1, 413},
	} {
		req := request(t, http.MethodPost, p.url, io.LimitReader(letters{}, c.size))
		req.ContentLength = c.length
		res := p.do(t, req)
		if res.StatusCode != c.status {
			t.Errorf("%d bytes, length %d: %s, want %d", c.size, c.length, res.Status, c.status)
		}
		if c.status != http.StatusOK {
			if got := problemOf(t, res); got.Type != "about:blank" || got.Title != "Request Entity Too Large" {
				t.Errorf("%+v", got)
			}
		}
	}
	for range 2 {
		if got := receive(t, requests, "a request"); got.body != "abcdefghij" {
			t.Errorf("the upstream got %q", got.body)
		}
	}
	if len(p.log.with("upstream failed")) > 0 {
		t.Errorf("the log says %s", p.log)
	}
	// Of those of unknown length the upstream may have seen the beginning.
	p.expectTotals(t, proxy.Totals{Allowed: 4, Rejected: 4})
}

func TestUpstreamThatDoesNotAnswer(t *testing.T) {
	const timeout = 50 * time.Millisecond
	release := make(chan struct{})
	silent := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	p := start(t, silent, func(o *proxy.Options) { o.UpstreamTimeout = timeout })

	res := p.get(t, "/")
	if got := problemOf(t, res); res.StatusCode != http.StatusGatewayTimeout || got.Type != "about:blank" || got.Title != "Gateway Timeout" {
		t.Errorf("%s %+v", res.Status, got)
	}
	if res.Header.Get("Ratelimit") == "" {
		t.Errorf("no RateLimit in %v", res.Header)
	}

	// The upstream reads nothing of the body, which is too large for the buffers on the way.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := request(t, http.MethodPost, p.url, io.LimitReader(letters{}, 1<<30)).WithContext(ctx)
	got, err := p.client.Do(req)
	if err == nil {
		_ = got.Body.Close()
		if got.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%s, want 504", got.Status)
		}
	} // else the answer has come while the client was writing, and it could not read it any more
	p.expectTotals(t, proxy.Totals{Allowed: 2, UpstreamErrors: 2})
	if lines := p.log.with("upstream failed"); len(lines) != 2 || !strings.Contains(lines[1], "does not read the body") {
		t.Errorf("the log says %s", p.log)
	}
}

// TestSlowClientsAreNotTheUpstreamsFault has a client that takes longer for its body than the upstream may for its answer. If the
// machine stands still, so may the upstream: then both have more time.
func TestSlowClientsAreNotTheUpstreamsFault(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		p := start(t, to, func(o *proxy.Options) { o.UpstreamTimeout = timeout })
		reader, writer := io.Pipe()
		go func() {
			for range 2 {
				_, _ = io.WriteString(writer, "x")
				<-time.After(timeout + timeout/4) // this is how slow it is
			}
			_ = writer.Close()
		}()
		res := p.do(t, request(t, http.MethodPost, p.url, reader))
		if res.StatusCode == http.StatusOK && res.body == "xx" {
			return
		}
		if timeout > 20*time.Second {
			t.Fatalf("with %v: %s %q", timeout, res.Status, res.body)
		}
	}
}
