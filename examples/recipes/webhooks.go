package recipes

import (
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// Webhooks is a client that sends each host 5 requests a second. Others wait, for up to 30 seconds. After a 429 or 503 with
// Retry-After, all wait for as long as the host says.
func Webhooks() (*http.Client, error) {
	pace := weir.TokenBucket(weir.PerSecond(5), 1)
	perHost, err := weir.NewKeyed[string](pace, weir.KeyedOptions{Name: "host", QueueLimit: 150})
	if err != nil {
		return nil, err
	}
	transport, err := httpclient.New(httpclient.Options{Keyed: perHost, MaxWait: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}
