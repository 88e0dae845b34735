package quotacmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flagvalue"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/misuse"
)

const (
	defaultServer = "http://127.0.0.1:7070"
	mostAnswer    = 16 << 20
)

// target is which quota of which server is meant.
type target struct {
	server    string
	tokenFile string
	timeout   time.Duration
	policy    string
	key       string
	asJSON    bool
}

func (t *target) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	t.server, t.timeout = defaultServer, 10*time.Second
	fs.Var((*text)(&t.policy), "policy",
		"policy of durability cluster; of several limits one is policy/limit (default: none, it is required)")
	fs.Var((*text)(&t.key), "key", `key whose quota it is (default "": that of a policy without keys)`)
	fs.Var((*serverURL)(&t.server), "server", "where weir serve answers")
	fs.Var(flagvalue.File(&t.tokenFile), "token-file", "file with the token of --admin-token-file of the server (default: none)")
	fs.Var(flagvalue.Duration(&t.timeout, time.Millisecond, time.Hour), "timeout", "how long the answer may take, from 1ms to 1h")
	fs.BoolVar(&t.asJSON, "json", false, "print the JSON object that the server answers")
	_ = cmd.MarkFlagRequired("policy") // there is such a flag
}

// text is the value of a flag that can be any text.
type text string

// String is the current value.
func (t *text) String() string { return string(*t) }

// Set stores s.
func (t *text) Set(s string) error {
	*t = text(s)
	return nil
}

// Type is what help shows in place of a value.
func (*text) Type() string { return "text" }

// serverURL is the URL of a server.
type serverURL string

// String is the current value.
func (u *serverURL) String() string { return string(*u) }

// Set stores s if it is the URL of a server.
func (u *serverURL) Set(s string) error {
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil ||
		parsed.RawQuery != "" {
		if err == nil && parsed.User != nil {
			return errors.New("must have no user and no password: what the server wants to see is in --token-file")
		}
		return errors.New("must be a URL such as http://127.0.0.1:7070 or https://weir.example.com")
	}
	*u = serverURL(strings.TrimRight(s, "/"))
	return nil
}

// Type is what help shows in place of a value.
func (*serverURL) Type() string { return "url" }

var (
	_ pflag.Value = (*text)(nil)
	_ pflag.Value = (*serverURL)(nil)
)

// query is what a GET names the quota by.
func (t *target) query() url.Values { return url.Values{"policy": {t.policy}, "key": {t.key}} }

// ask asks the server, and reads its answer into v.
func (t *target) ask(ctx context.Context, method, path string, body, v any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	content, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, t.server+path, bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	if body == nil {
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if t.tokenFile != "" {
		var token []byte
		if token, err = checkapi.ReadToken(t.tokenFile); err != nil {
			return nil, misuse.Inputf("%s", err)
		}
		r.Header.Set("Authorization", "Bearer "+string(token))
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("weir: %s has not answered within %s", t.server, flagvalue.Short(t.timeout))
		}
		return nil, fmt.Errorf("weir: %s cannot be asked: %w", t.server, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("weir: the answer of %s ends too early: %w", t.server, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, t.refused(response.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return nil, fmt.Errorf("weir: %s does not answer as weir serve does: %w", t.server, err)
	}
	return answer, nil
}

// refused is why the server has not done what it was asked.
func (t *target) refused(status int, answer []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(answer, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("weir: %s does not answer as weir serve does: status %d", t.server, status)
	}
	if status >= http.StatusInternalServerError {
		return fmt.Errorf("weir: %s: %s", t.server, problem.Detail)
	}
	if strings.HasPrefix(problem.Detail, "there is no such page") {
		problem.Detail = "it has no quotas: weir serve needs --config, with a cluster"
	}
	return misuse.Inputf("%s: %s", t.server, problem.Detail)
}
