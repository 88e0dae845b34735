// Package meteredclient is a client of an API that is paid for, or that refuses too many requests. It sends 5 requests at once
// and 8 a minute, or what GEMINI_BURST and GEMINI_TOKENS_PER_MINUTE set. Other requests wait.
package meteredclient

import (
	"net/http"
	"os"

	"github.com/weirhq/weir/httpclient"
)

// New returns a client whose requests are paced together, for all hosts, and which obeys the limits of the API itself. It is safe
// for concurrent use, and there should be one for each account.
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
