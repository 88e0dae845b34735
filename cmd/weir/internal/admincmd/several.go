package admincmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/serverflags"
	"github.com/weirhq/weir/cmd/weir/internal/table"
)

// severalServers is the part of the help of changes that tells of replicas.
const severalServers = `

Each server changes what it has itself. With --server once for each replica the
change is made in one after the other, and what became of it is told of each; one
that fails does not keep it from the others, and the exit status is then not 0.`

// one asks a server.
func (q *question) one(cmd *cobra.Command, c *admin.Client, ask asking, w io.Writer) error {
	if q.aKey && !cmd.Flags().Changed("key") {
		if err := q.keyless(cmd.Context(), c); err != nil {
			return err
		}
	}
	return serverflags.Wrong(ask(cmd.Context(), c, w))
}

// asking asks a server, and writes its answer.
type asking func(ctx context.Context, c *admin.Client, w io.Writer) error

// each asks all servers, one after the other. If none of them takes the question, the error is what the first says to it.
func (q *question) each(cmd *cobra.Command, ask asking) error {
	clients, err := q.server.Clients()
	if err != nil {
		return err
	}
	var failed []string
	var first error
	for _, c := range clients {
		var b bytes.Buffer
		err := q.one(cmd, c, ask, &b)
		c.Close()
		if err != nil {
			failed = append(failed, c.Server())
			if first == nil {
				first = err
			}
		}
		if unwritten := q.tell(cmd.OutOrStdout(), c.Server(), b.Bytes(), err); unwritten != nil {
			return unwritten
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == len(clients) && isMisuse(first):
		return first
	}
	what := "replied"
	if q.changes {
		what = "confirmed the change"
	}
	return fmt.Errorf("weir: %d of %d servers have not %s: %s", len(failed), len(clients), what, strings.Join(failed, ", "))
}

func isMisuse(err error) bool {
	_, wrong := errors.AsType[*flags.Error](err)
	_, input := errors.AsType[*flags.InputError](err)
	return wrong || input
}

// tell tells what became of it in one of several servers: a line of text, or a JSON object in a line.
func (q *question) tell(w io.Writer, server string, answer []byte, failed error) error {
	var b bytes.Buffer
	wrong := ""
	if failed != nil {
		wrong = strings.TrimPrefix(failed.Error(), "weir: ")
	}
	switch {
	case q.asJSON:
		line, err := json.Marshal(struct {
			Server string          `json:"server"`
			Answer json.RawMessage `json:"answer,omitempty"`
			Error  string          `json:"error,omitempty"`
		}{server, bytes.TrimSpace(answer), wrong})
		if err != nil { // an answer of a server that is no JSON
			return fmt.Errorf("weir: %w", err)
		}
		b.Write(append(line, '\n'))
	case failed != nil:
		fmt.Fprintf(&b, "%s: FAILED: %s\n", server, table.Printable(wrong))
	default:
		for line := range strings.Lines(string(answer)) {
			fmt.Fprintf(&b, "%s: %s", server, line)
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}
