// Package llmclient is a client of a language model with two limits for each model: requests a minute, and tokens a minute. The
// cost of a request is known only after its response. So an estimate is reserved before, and what was really used is committed
// afterwards.
package llmclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
	"github.com/weirhq/weir/keyset"
)

// Options configure a Client.
type Options struct {
	// URL is where completions are asked for.
	URL string
	// HTTP sends the requests. With a Transport of package httpclient it also obeys what the provider says in its header.
	HTTP *http.Client
	// RequestsPerMinute and TokensPerMinute are the limits of each model.
	RequestsPerMinute, TokensPerMinute int64
}

// Client asks models. Its requests wait for their turn.
type Client struct {
	url      string
	http     *http.Client
	requests *weir.Keyed[string]
	tokens   *weir.Keyed[string]
}

// New returns a client that has sent nothing yet.
func New(o Options) (*Client, error) {
	requests, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(o.RequestsPerMinute), 0), weir.KeyedOptions{
		Name: "requests", QueueLimit: 1000,
	})
	if err != nil {
		return nil, err
	}
	// A request that uses more than was estimated leaves a debt, which the next ones wait for.
	tokens, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(o.TokensPerMinute), 0), weir.KeyedOptions{
		Name: "tokens", QueueLimit: 10_000_000,
	})
	if err != nil {
		return nil, err
	}
	return &Client{url: o.URL, http: o.HTTP, requests: requests, tokens: tokens}, nil
}

// Request is a prompt for a model, which may answer with up to MaxTokens.
type Request struct {
	Model     string `json:"model"`
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

// Answer is what the model has written, and what that has cost.
type Answer struct {
	Text  string `json:"text"`
	Usage struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// estimate is what a request costs at most: a token has some 4 bytes of English text, and an answer may be as long as was asked
// for.
func (r *Request) estimate() int64 { return int64(len(r.Prompt)+3)/4 + r.MaxTokens }

// ErrTooLarge is the answer to a request that asks for more tokens than the limit ever holds. It never helps to wait.
var ErrTooLarge = errors.New("llmclient: the request is larger than the limit of tokens")

// LimitedError is the answer to a request that would not be served before its context ends.
type LimitedError struct {
	Limit      string
	RetryAfter time.Duration
}

// Error names the limit and the wait.
func (e *LimitedError) Error() string {
	return fmt.Sprintf("llmclient: the limit of %s is exceeded, retry after %v", e.Limit, e.RetryAfter)
}

// Complete waits until both limits grant the request, sends it, and settles what it has cost.
func (c *Client) Complete(ctx context.Context, r Request) (Answer, error) {
	estimate := r.estimate()
	// Both limits or none: a request that is short of tokens does not use up one of the requests.
	leases, _, err := keyset.ReserveAll(
		ctx, nil,
		keyset.Charge{Limiter: c.requests, Key: r.Model, N: 1},
		keyset.Charge{Limiter: c.tokens, Key: r.Model, N: estimate},
	)
	if refused, ok := errors.AsType[*weir.RefusedError](err); ok {
		d := refused.Decision
		if d.RetryAfter == weir.Never {
			return Answer{}, fmt.Errorf("%w: %d, of at most %d", ErrTooLarge, estimate, d.Limit)
		}
		return Answer{}, &LimitedError{d.Policy, d.RetryAfter}
	}
	if err != nil {
		return Answer{}, err
	}
	request, tokens := leases[0], leases[1]
	answer, err := c.send(ctx, r)
	switch {
	case err == nil:
		request.Commit(1)
		tokens.Commit(answer.Usage.TotalTokens)
	case errors.Is(err, errRefused): // it counts as a request, and has used no tokens
		request.Commit(1)
		tokens.Cancel()
	case errors.Is(err, httpclient.ErrLimited): // it was held back, and never sent
		request.Cancel()
		tokens.Cancel()
	default: // what it has cost is not known: what was reserved is spent
		request.Release()
		tokens.Release()
	}
	return answer, err
}

var errRefused = errors.New("llmclient: the provider refuses")

func (c *Client) send(ctx context.Context, r Request) (answer Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(request)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }() // what was to be read has been read
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
		return answer, fmt.Errorf("%w: %s", errRefused, resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer, err
}

// Remaining is how many requests and tokens can be asked for now.
func (c *Client) Remaining(model string) (requests, tokens int64) {
	return c.requests.Peek(model, 0).Remaining, c.tokens.Peek(model, 0).Remaining
}
