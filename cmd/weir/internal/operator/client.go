package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ClientOptions configure a [Client].
type ClientOptions struct {
	// Server is its URL, such as "http://127.0.0.1:7070". Required.
	Server string
	// Token is what the server wants to see. Default: "", nothing.
	Token string
	// TLS has the certificate of the client and the authorities of that of the server. Default: nil, those of the system.
	TLS *tls.Config
	// Timeout is how long an answer may take, streams of events left out, and how long a stream may say nothing. Default: 10 s.
	Timeout time.Duration
}

const (
	defaultTimeout = 10 * time.Second
	// mostAnswer is how long an answer may be: 10,000 keys of 1 KiB are some 15 MiB.
	mostAnswer = 64 << 20
	jsonType   = "application/json"
)

// Client asks a server. It is safe for concurrent use.
type Client struct {
	o    ClientOptions
	http *http.Client
}

// NewClient returns a client. Its errors say what to do: they are for people.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("weir: server %q: must be a URL such as http://127.0.0.1:7070", o.Server)
	}
	if o.TLS != nil && len(o.TLS.Certificates) > 0 && u.Scheme == "http" {
		return nil, fmt.Errorf("weir: server %q: must begin with https:// to be shown a certificate", o.Server)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	o.Server = strings.TrimRight(o.Server, "/")
	var transport *http.Transport
	if usual, ok := http.DefaultTransport.(*http.Transport); ok {
		transport = usual.Clone()
	} else {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	return &Client{o: o, http: &http.Client{
		Transport: transport,
		// No server of weir sends anywhere else, and a token is for one server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Server is the URL of the server.
func (c *Client) Server() string { return c.o.Server }

// Timeout is how long an answer may take.
func (c *Client) Timeout() time.Duration { return c.o.Timeout }

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get reads the response of a path into v. The errors are those of [Client.Post].
func (c *Client) Get(ctx context.Context, path string, query url.Values, v any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.ask(ctx, http.MethodGet, path, nil, v)
}

// Post sends body to a path, and reads the answer into v. The error is a [*Refused] if the server has answered that it does not
// do it; any other means that there was no answer, and what the server has done is not known.
func (c *Client) Post(ctx context.Context, path string, body, v any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return c.ask(ctx, http.MethodPost, path, content, v)
}

// ask reads an answer into v.
func (c *Client) ask(ctx context.Context, method, path string, content []byte, v any) error {
	answer, err := c.read(ctx, method, path, content)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		path, _, _ = strings.Cut(path, "?")
		return c.stranger("%s is answered with %s", path, excerpt(answer))
	}
	return nil
}

// read asks, and returns what a successful answer has.
func (c *Client) read(ctx context.Context, method, path string, content []byte) ([]byte, error) {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	response, err := c.send(ctx, method, path, jsonType, content)
	if err != nil {
		return nil, c.unanswered(asked, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, c.unanswered(asked, err)
	case err != nil:
		return nil, fmt.Errorf("weir: %s: its answer ends too early: %w", c.o.Server, err)
	case len(answer) > mostAnswer:
		return nil, c.stranger("%s is answered with more than %d MiB", path, mostAnswer>>20)
	case response.StatusCode != http.StatusOK:
		return nil, c.refused(path, response, answer)
	}
	return answer, nil
}

// send sends a request.
func (c *Client) send(ctx context.Context, method, path, accept string, content []byte) (*http.Response, error) {
	var body io.Reader
	if content != nil {
		body = bytes.NewReader(content)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.o.Server+path, body)
	if err != nil {
		return nil, err
	}
	if content != nil {
		r.Header.Set("Content-Type", jsonType)
	}
	r.Header.Set("Accept", accept)
	if c.o.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	return c.http.Do(r)
}

// Event is one of a stream.
type Event struct {
	Name string
	Data []byte
}

var errSilent = errors.New("silent")

// Events calls got for each event of the server until ctx ends, got returns false, or the stream ends, which is an error. It is
// nil only if got has answered false. got must not keep Data.
func (c *Client) Events(ctx context.Context, got func(Event) bool) error {
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A server that was stopped, or is behind a cable that was pulled, says nothing and closes nothing.
	silence := time.AfterFunc(c.o.Timeout, func() { cancel(errSilent) })
	defer silence.Stop()
	response, err := c.send(ctx, http.MethodGet, EventsPath, eventStreamType, nil)
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = context.DeadlineExceeded
		}
		return c.unanswered(asked, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, mostEvent)) // what there is of it
		return c.refused(EventsPath, response, answer)
	}
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != eventStreamType {
		return c.stranger("%s is answered with the Content-Type %s", EventsPath, excerpt([]byte(kind)))
	}
	err = readEvents(response.Body, func() { silence.Reset(c.o.Timeout) }, got)
	switch {
	case err == nil:
		return nil
	case asked.Err() != nil:
		return asked.Err()
	case errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("weir: %s has said nothing for %s", c.o.Server, c.o.Timeout)
	case errors.Is(err, errLongEvent):
		return c.stranger("an event has more than %d MiB", mostEvent>>20)
	default:
		return fmt.Errorf("weir: %s has ended the stream of events", c.o.Server)
	}
}

// Answer is what a server has answered, as a value and as it was written. It is for the v of [Client.Get] and [Client.Post].
type Answer[T any] struct {
	Value T
	JSON  json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Answer[T]) UnmarshalJSON(text []byte) error {
	a.JSON = bytes.Clone(text)
	return json.Unmarshal(text, &a.Value)
}

// Policy is what the server says of a policy, nil if there is none with the name.
func (c *Client) Policy(ctx context.Context, name string) (*Policy, error) {
	var all []Policy
	if err := c.Get(ctx, PoliciesPath, nil, &all); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// Key is the state of a key of a policy.
func (c *Client) Key(ctx context.Context, policy, key string) (state Answer[Key], err error) {
	err = c.Get(ctx, KeyPath, ofKey(policy, key), &state)
	return state, err
}

// ofKey names a key of a policy in a query.
func ofKey(policy, key string) url.Values { return url.Values{policyWord: {policy}, keyWord: {key}} }

// Paths of the admin API. Those of a policy and a key name them in the query, as both may have any characters.
const (
	OverviewPath      = "/v1/admin/overview"      // GET: Overview
	EventsPath        = "/v1/admin/events"        // GET: events: "overview", an Overview, each second, "refusal", "audit"
	PoliciesPath      = "/v1/admin/policies"      // GET: []Policy
	RulesPath         = "/v1/admin/rules"         // GET: []Rule
	KeysPath          = "/v1/admin/keys"          // GET ?policy=P&n=20: []Key, those under the most pressure first
	KeyPath           = "/v1/admin/key"           // GET ?policy=P&key=K: Key
	SearchPath        = "/v1/admin/search"        // GET ?word=W&n=20: Search, with at most so many refusals
	LockoutsPath      = "/v1/admin/lockouts"      // GET ?policy=P&n=100: []Lockout
	OverridesPath     = "/v1/admin/overrides"     // GET: []Override
	RefusalsPath      = "/v1/admin/refusals"      // GET ?policy=P&key=K&n=100: Refusals, the last first
	RefusalPath       = "/v1/admin/refusal"       // GET ?id=ID: Refusal
	ReportPath        = "/v1/admin/report"        // GET ?policy=P: text/plain, or with Accept: application/json Report
	ConfigurationPath = "/v1/admin/configuration" // GET: Configuration
	ReplicasPath      = "/v1/admin/replicas"      // GET: Replicas
	MembersPath       = "/v1/admin/members"       // GET: []Member
	AuditPath         = "/v1/admin/audit"         // GET ?n=100: []AuditEntry, the last first
	ExplainPath       = "/v1/admin/explain"       // POST Described: ExplanationJSON

	UnlockPath   = "/v1/admin/unlock"   // POST Change: Changed
	OverridePath = "/v1/admin/override" // POST Override: Changed
	RestorePath  = "/v1/admin/restore"  // POST Change: Changed
	ResetPath    = "/v1/admin/reset"    // POST Change: Changed
	// MemberRemovePath and MemberAddPath change the nodes of the cluster.
	MemberRemovePath = "/v1/admin/memberremove" // POST MemberChange: Changed
	MemberAddPath    = "/v1/admin/memberadd"    // POST MemberChange: Changed
	ReloadPath       = "/v1/admin/reload"       // POST Change without policy and key: Changed

	MetricsPath = "/metrics" // GET: in the formats of Prometheus
	UIPath      = "/ui/"     // GET: the dashboard
)
