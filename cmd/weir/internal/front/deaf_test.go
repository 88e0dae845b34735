package front_test

import (
	"bytes"
	"crypto/tls"
	"errors"
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

// TestDeafConnectionsOfHTTP2End has a client whose streams may get all there is, and which reads nothing from their connection.
func TestDeafConnectionsOfHTTP2End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := make(chan struct{})
		own := fronttest.SelfSigned(t, "one")
		s := front.NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer close(served)
			for err := error(nil); err == nil; _, err = w.Write(make([]byte, 1<<16)) {
			}
		}), &tls.Config{
			Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		}, nil, slog.New(slog.DiscardHandler))
		l := fronttest.Pipes()
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		below, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(below, &tls.Config{RootCAs: own.Pool, ServerName: "one", NextProtos: []string{http2.NextProtoTLS}})
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "one"}} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes all
		}
		framer := http2.NewFramer(conn, nil)
		_, err = conn.Write([]byte(http2.ClientPreface))
		if err = errors.Join(err,
			framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32}),
			framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
			}),
		); err != nil {
			t.Fatal(err)
		}
		select {
		case <-served:
		case <-time.After(time.Minute): // of the clock of the bubble
			t.Error("the request of a client that reads nothing goes on")
		}
		_ = below.Close()
		_ = s.Close()
		<-ended
	})
}
