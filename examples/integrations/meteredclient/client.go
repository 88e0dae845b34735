// Package meteredclient is a client of an API that is paid for, or refuses what comes too fast: 5 requests at once and 8 a
// minute, or what GEMINI_BURST and GEMINI_TOKENS_PER_MINUTE say. Requests that come faster wait.
package meteredclient

import (
	"net/http"
	"os"

	"github.com/weirhq/weir/httpclient"
)

// New returns a client whose requests are paced together, wherever they go, and which obeys what the API says about its own
// limits. It is safe for concurrent use, and there should be one for each account.
func New() (*http.Client, error) {
	options, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{Name: "account", LookupEnv: os.LookupEnv})
	if err != nil {
		return nil, err
	}
	transport, err := httpclient.New(options)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}
