package front_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// secure is a server that speaks TLS, and a client of it that has begun with HTTP/2 and reads no frame by itself. Streams of the
// client may get window bytes. It is for virtual time.
func secure(t *testing.T, h http.HandlerFunc, bound *front.Bounded, window uint32) (ask func(stream uint32), framer *http2.Framer) {
	t.Helper()
	own := fronttest.SelfSigned(t, "one")
	s := front.NewHTTPServer(h, &tls.Config{
		Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
	}, bound, slog.New(slog.DiscardHandler))
	l := fronttest.Pipes()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	below, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = below.Close()
		_ = s.Close()
		<-ended
	})
	conn := tls.Client(below, &tls.Config{RootCAs: own.Pool, ServerName: "one", NextProtos: []string{http2.NextProtoTLS}})
	framer = http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // then the server waits for its own settings to be read, and writes nothing behind them
	return func(stream uint32) {
		t.Helper()
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "one"}} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes all
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
		}); err != nil {
			t.Fatal(err)
		}
	}, framer
}

// TestDeafConnectionsOfHTTP2End has a client whose streams may get all there is, and which reads nothing from their connection.
func TestDeafConnectionsOfHTTP2End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := make(chan struct{})
		ask, _ := secure(t, func(w http.ResponseWriter, _ *http.Request) {
			defer close(served)
			part, err := make([]byte, 1<<16), error(nil)
			for err == nil {
				_, err = w.Write(part)
			}
		}, nil, math.MaxInt32)
		ask(1)
		select {
		case <-served:
		case <-time.After(time.Minute): // of the clock of the bubble
			t.Error("the request of a client that reads nothing goes on")
		}
	})
}

// TestStreamsNotTakenAreBounded has a client of HTTP/2 that takes no responses: they stay under way, and those beyond the bound are
// refused.
func TestStreamsNotTakenAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask, framer := secure(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") },
			front.NewBounded(2, 2, nil), 0)
		statuses := make(chan string)
		go func() {
			defer close(statuses)
			for {
				f, err := framer.ReadFrame()
				if err != nil {
					return
				}
				if h, ok := f.(*http2.MetaHeadersFrame); ok {
					statuses <- h.PseudoValue("status")
				}
			}
		}()
		for i, want := range []string{"200", "200", "200", "503", "503"} {
			ask(uint32(2*i + 1))
			if got := <-statuses; got != want {
				t.Errorf("request %d: %s, want %s", i, got, want)
			}
		}
		if err := framer.WriteWindowUpdate(1, 2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ask(11)
		if got := <-statuses; got != "200" {
			t.Errorf("after one was taken: %s", got)
		}
	})
}

// TestRefusalsBehindWhatIsNotReadAreBounded has a client that reads nothing from its connection of HTTP/2: refusals wait for it, and
// those that have no room for that either are reset.
func TestRefusalsBehindWhatIsNotReadAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask, framer := secure(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			front.Await(r)
		}, front.NewBounded(2, 2, nil), 0)
		const requests = 9
		for i := range requests {
			ask(uint32(2*i + 1))
			synctest.Wait()
		}
		got := make(map[uint32]string)
		for len(got) < requests {
			f, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				got[f.StreamID] = f.PseudoValue("status")
			case *http2.RSTStreamFrame:
				got[f.StreamID] = "reset"
			}
		}
		for i, want := range [requests]string{"204", "204", "204", "503", "503", "reset", "reset", "reset", "reset"} {
			if got := got[uint32(2*i+1)]; got != want {
				t.Errorf("request %d: %s, want %s", i, got, want)
			}
		}
		ask(2*requests + 1)
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := f.(*http2.MetaHeadersFrame); ok {
				if got := h.PseudoValue("status"); got != "204" {
					t.Errorf("after all were read: %s", got)
				}
				break
			}
		}
	})
}
