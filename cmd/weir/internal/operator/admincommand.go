package operator

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// AdminCommand returns the command "admin".
func AdminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Look at a running server, and let a key through or shut it in",
		Long: `admin asks a running weir serve about its policies, keys, lockouts, refusals and
replicas, and changes what holds for a single key: it ends a lockout, makes
another limit hold for a while, or forgets what the key has used. Every change is
in the audit log of the server, with who made it and why.

"weir why" shows why a request was refused, and "weir top" shows all of it live.`,
		Example: `  weir admin status
  weir admin keys --policy per-client
  weir admin unlock --policy login --key 192.0.2.1 --reason 'mistyped a password'
  weir admin override --policy api --key acme --limit '100/s, burst 200' --for 2h --reason 'launch day'`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(
		statusCommand(), policiesCommand(), keysCommand(), keyCommand(), lockoutsCommand(), refusalsCommand(), reportCommand(),
		overridesCommand(), overrideCommand(), restoreCommand(), unlockCommand(), resetCommand(), reloadCommand(),
		configCommand(), replicasCommand(), auditCommand(),
	)
	return cmd
}

// Bounds of what is asked of the admin API, in bytes and as times.
const (
	MostKey          = 1024
	MostReason       = 1024
	ShortestOverride = time.Second
	LongestOverride  = 3660 * 24 * time.Hour

	mostWord = 8192
)
