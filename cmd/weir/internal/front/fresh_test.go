package front_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// TestShutdownDoesNotWaitForUnusedConnections has a client that connects and says nothing. Without this package a server
// waits five seconds for it.
func TestShutdownDoesNotWaitForUnusedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler()}
		h := front.NewHTTP(s, nil, nil, slog.New(slog.DiscardHandler))
		l := fronttest.Pipes()
		served := make(chan error, 1)
		go func() { served <- h.Serve(l) }()
		conn, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		synctest.Wait()
		began := time.Now()
		if err = s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(began); took >= time.Second { // of the clock of the bubble
			t.Errorf("Shutdown has waited for %v", took)
		}
		if _, err = conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection answers %v, want EOF", err)
		}
		if err = <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
