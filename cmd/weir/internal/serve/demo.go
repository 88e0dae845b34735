package serve

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// demoConfig has limits that some of the traffic of the demo meets.
const demoConfig = `version: 1
policies:
  client: {limit: 5/s, burst: 10, key: client.ip}
  login: {limit: 10/min, key: client.ip}
rules:
  - {name: all, limits: client}
  - {name: login, match: {method: POST, path: /login}, limits: login}
`

// demoRate is how many requests a second the demo sends.
const demoRate = 60

// DemoCommand returns the command "demo".
func DemoCommand() *cobra.Command {
	address := "127.0.0.1:7070"
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Run a server with traffic, to look at its dashboard",
		Long: `demo runs a server with two limits, and twelve clients that ask it, some of
them more than they may. It names the page where that can be seen. Nothing is
written to disk but a configuration in a directory for temporary files, which
is removed at the end.`,
		Example: `  weir demo
  weir demo --http 127.0.0.1:0
  weir demo cluster`,
		Args:              cobra.ArbitraryArgs, // RunE says what is wrong with them
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return flags.NoSubcommand(cmd, args[0])
			}
			return demo(cmd, address)
		},
	}
	cmd.AddCommand(demoClusterCommand())
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(flags.Listen(&address), "http", "address of the server; port 0 is any that is free")
	return cmd
}

// demo serves, and asks, until the context of the command ends.
func demo(cmd *cobra.Command, address string) error {
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return fmt.Errorf("weir: demo: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system removes it otherwise
	path := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(path, []byte(demoConfig), 0o600); err != nil {
		return fmt.Errorf("weir: demo: %w", err)
	}
	ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGHUP) // which its terminal sends as it closes
	defer cancel()
	var traffic sync.WaitGroup
	defer traffic.Wait()
	defer cancel() // before the traffic is waited for
	var o options
	o.serves = func(at net.Addr) {
		if !terminal.Of(cmd.ErrOrStderr()).Interactive { // where there is one the server itself names the page
			fmt.Fprintf(cmd.OutOrStdout(), "the dashboard is at http://%s%s\n", front.Reachable(at), operator.UIPath)
		}
		traffic.Go(func() { ask(ctx, "http://"+front.Reachable(at)+"/v1/decide") })
	}
	server := o.command(nil)
	server.SetArgs([]string{"--http", address, "--config", path, "--state", stateNone})
	server.SetOut(cmd.OutOrStdout())
	server.SetErr(cmd.ErrOrStderr())
	server.SilenceErrors, server.SilenceUsage = true, true
	return server.ExecuteContext(ctx)
}

// ask asks as twelve clients do, the first ones more often than the others, until ctx ends.
func ask(ctx context.Context, url string) {
	tick := time.NewTicker(time.Second / demoRate)
	defer tick.Stop()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		const clients = 12
		number := min(rand.IntN(clients), rand.IntN(clients)) //nolint:gosec // which client asks is no secret
		request := `"method":"GET","path":"/products"`
		if number < 2 {
			request = `"method":"POST","path":"/login"`
		}
		demoPost(ctx, client, url, fmt.Sprintf(`{%s,"client":"192.0.2.%d"}`, request, number+1))
	}
}

// demoPost asks a server, and returns the status of the answer, 0 if there is none.
func demoPost(ctx context.Context, client *http.Client, url, body string) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection can be used again
	_ = answer.Body.Close()
	return answer.StatusCode
}
