//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// httpFront is the HTTP check API.
type httpFront struct {
	address string
	client  *http.Client
}

func newHTTPFront(address string, c *connections) *httpFront {
	return &httpFront{address, &http.Client{Transport: &http.Transport{
		DialContext: c.dial, MaxIdleConnsPerHost: mostIdle, IdleConnTimeout: time.Minute,
	}}}
}

func (f *httpFront) close() { f.client.CloseIdleConnections() }

func (f *httpFront) speaks(r *request) bool { return r.verb != refund && r.verb != resets }

// jsonCheck is what a check says.
type jsonCheck struct {
	Policy  string  `json:"policy"`
	Key     string  `json:"key"`
	Cost    int64   `json:"cost"`
	Wait    float64 `json:"wait,omitempty"`
	Expires float64 `json:"expires_in,omitempty"`
}

// jsonAnswer is what is answered.
type jsonAnswer struct {
	Allowed    bool         `json:"allowed"`
	Reason     string       `json:"reason"`
	Policy     string       `json:"policy"`
	Remaining  int64        `json:"remaining"`
	RetryAfter *float64     `json:"retry_after"`
	ID         string       `json:"id"`
	Expires    float64      `json:"expires_in"`
	Results    []jsonAnswer `json:"results"`
	Detail     string       `json:"detail"`
}

func (f *httpFront) do(ctx context.Context, r *request) answer {
	c := r.charges[0]
	body := any(jsonCheck{Policy: c.policy, Key: c.key, Cost: c.n, Wait: r.wait.Seconds(), Expires: r.expires.Seconds()})
	path := "/v1/check"
	switch r.verb {
	case reserve:
		path = "/v1/reserve"
	case commit:
		path, body = "/v1/commit", map[string]any{"id": r.id, "cost": r.actual}
	case cancel:
		path, body = "/v1/cancel", map[string]any{"id": r.id}
	case takeAll:
		checks := make([]jsonCheck, 0, len(r.charges))
		for _, c := range r.charges {
			checks = append(checks, jsonCheck{Policy: c.policy, Key: c.key, Cost: c.n})
		}
		path, body = "/v1/batch", map[string]any{"atomic": true, "checks": checks}
	case take, refund, resets:
	}
	var got jsonAnswer
	status, err := f.call(ctx, http.MethodPost, path, body, &got)
	if err != nil {
		return failed(err)
	}
	return f.read(r, status, &got)
}

func (f *httpFront) read(r *request, status int, got *jsonAnswer) answer {
	switch {
	case r.verb == commit || r.verb == cancel:
		switch status {
		case http.StatusOK:
			return answer{outcome: granted, reason: reasonNone}
		case http.StatusNotFound:
			return answer{outcome: refused, reason: "no such reservation"}
		case http.StatusServiceUnavailable:
			return answer{outcome: unknown, reason: reasonUnavailable}
		}
	case r.verb == takeAll && len(got.Results) == len(r.charges):
		if got.Allowed {
			return answer{outcome: granted, reason: reasonNone}
		}
		a := answer{outcome: wrong, reason: "a batch that nothing refuses"}
		for i := range got.Results {
			if x := &got.Results[i]; !x.Allowed {
				one := said(false, x.Reason)
				if a.outcome == wrong || one.outcome == unknown {
					a = one
					a.binding = x.Policy
				}
			}
		}
		return a
	case got.Reason == "" && status == http.StatusServiceUnavailable:
		return answer{outcome: unknown, reason: reasonUnavailable}
	case got.Reason != "":
		a := said(got.Allowed, got.Reason)
		a.binding, a.id, a.expires = got.Policy, got.ID, seconds(got.Expires)
		if got.RetryAfter != nil {
			a.retryAfter = seconds(*got.RetryAfter)
		}
		return a
	}
	return answer{outcome: wrong, reason: fmt.Sprintf("status %d: %s", status, got.Detail)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// mostAnswered is how long an answer may be.
const mostAnswered = 8 << 20

// call asks for JSON.
func (f *httpFront) call(ctx context.Context, method, path string, body, into any) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := f.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err = io.ReadAll(io.LimitReader(response.Body, mostAnswered))
	if err != nil {
		return 0, err
	}
	if into != nil && len(text) > 0 {
		// What is not JSON leaves it empty, and the status says the rest.
		_ = json.Unmarshal(text, into)
	}
	return response.StatusCode, nil
}
