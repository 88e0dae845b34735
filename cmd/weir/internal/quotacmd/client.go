package quotacmd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/serverflags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// target is which quota of which server is meant.
type target struct {
	server serverflags.Server
	policy string
	key    string
	asJSON bool
}

func (t *target) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var((*text)(&t.policy), "policy",
		"policy of durability cluster; of several limits one is policy/limit (default: none, it is required)")
	fs.Var(serverflags.Key(&t.key, 0), "key", `key whose quota it is (default "": that of a policy without keys)`)
	t.server.Register(fs)
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

// query is what a GET names the quota by.
func (t *target) query() url.Values { return url.Values{"policy": {t.policy}, "key": {t.key}} }

// get reads what the server answers to a question into v.
func (t *target) get(ctx context.Context, path string, query url.Values, v any) error {
	return t.with(func(c *admin.Client) error { return c.Get(ctx, path, query, v) })
}

// post reads what the server answers to body into v.
func (t *target) post(ctx context.Context, path string, body, v any) error {
	return t.with(func(c *admin.Client) error { return c.Post(ctx, path, body, v) })
}

func (t *target) with(ask func(*admin.Client) error) error {
	client, err := t.server.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	err = ask(client)
	if refused, ok := errors.AsType[*admin.Refused](err); ok && refused.NoPage {
		return flags.Inputf("%s: it has no quotas: weir serve needs --config, with a cluster", client.Server())
	}
	return serverflags.Wrong(err)
}

// print prints what the server has answered.
func (t *target) print(w io.Writer, answer json.RawMessage, write func(io.Writer, terminal.Output)) error {
	return serverflags.Print(w, t.asJSON, answer, write)
}
