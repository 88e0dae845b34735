// Package quotacmd is the command that looks at quotas which a server keeps for good, and adjusts them.
package quotacmd

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// Command returns the command "quota".
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Look at quotas that outlive crashes, and adjust them",
		Long: `quota asks a running weir serve about policies of durability cluster: what is
left of a quota, such as a month's tokens of a tenant. It gives permits back or
takes them, and tells who did that before, and why. Any node of a cluster can be
asked.`,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota adjust --policy tenant-month --key acme --permits 5000 --reason 'refund of order 17'
  weir quota history --policy tenant-month --key acme`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(showCommand(), adjustCommand(), historyCommand())
	return cmd
}

const exitStatus = `

The exit status is 0 on success, 1 if the server cannot be reached or no node owns
the limits now, and 2 if the question is wrong, such as a policy that is not there.`
