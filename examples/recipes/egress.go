package recipes

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// Egress is a proxy through which all processes of a fleet send to one server, so that what the server tells one of them counts
// for all. A request waits for up to 30 seconds. One that would wait longer gets 503 with Retry-After. base sends the requests;
// nil stands for [http.DefaultTransport].
func Egress(server *url.URL, base http.RoundTripper) (http.Handler, error) {
	pace, err := httpclient.New(httpclient.Options{Base: base, MaxWait: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: pace,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(server) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			limited, is := errors.AsType[*httpclient.LimitedError](err)
			switch {
			case !is:
				w.WriteHeader(http.StatusBadGateway)
				return
			case limited.RetryAfter < weir.Never:
				w.Header().Set("Retry-After", strconv.Itoa(int(limited.RetryAfter/time.Second)+1))
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}, nil
}
