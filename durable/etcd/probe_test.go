package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestProbe: why an endpoint cannot be used is told, not only that it has not answered.
func TestProbe(t *testing.T) {
	start := func(server *httptest.Server, o *tls.Config) string {
		t.Cleanup(server.Close)
		if o != nil {
			server.TLS = o
			server.EnableHTTP2 = true
			server.StartTLS()
		} else {
			server.Start()
		}
		return server.URL
	}
	plain := start(httptest.NewUnstartedServer(http.NotFoundHandler()), nil)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	open := start(secure, new(tls.Config))
	closed := start(httptest.NewUnstartedServer(http.NotFoundHandler()), &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	known := x509.NewCertPool()
	known.AddCert(secure.Certificate())
	trusting := &tls.Config{RootCAs: known}
	for _, c := range []struct {
		endpoints []string
		secure    *tls.Config
		want      string // "" if there is nothing to tell
	}{
		{[]string{plain, open}, trusting, ""},
		{[]string{plain, gone.URL}, nil, "refused"},
		{[]string{open}, nil, "certificate"},
		{[]string{open, closed}, trusting, "certificate required"},
	} {
		err := probe(t.Context(), c.endpoints, c.secure)
		// The machine may stand still for longer than an endpoint may take to answer, or to refuse.
		late := func() bool { return errors.Is(err, context.DeadlineExceeded) || err == nil && c.want != "" }
		for end := time.Now().Add(time.Minute); late() && time.Now().Before(end); {
			err = probe(t.Context(), c.endpoints, c.secure)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.endpoints, err, c.want)
		}
	}
}
