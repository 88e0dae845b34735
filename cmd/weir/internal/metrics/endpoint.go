package metrics

import (
	"errors"
	"net/url"
)

// endpoint is the value of --otlp-endpoint.
type endpoint struct{ url *string }

// String is the URL.
func (e *endpoint) String() string {
	if e.url == nil {
		return ""
	}
	return *e.url
}

// Set reads a URL.
func (e *endpoint) Set(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be http://HOST:PORT or https://HOST:PORT, with a path or without")
	}
	*e.url = text
	return nil
}

// Type is what stands for the value in the help.
func (*endpoint) Type() string { return "URL" }
