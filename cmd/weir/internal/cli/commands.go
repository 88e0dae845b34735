package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/load"
	"github.com/weirhq/weir/cmd/weir/internal/offline"
	"github.com/weirhq/weir/cmd/weir/internal/offline/replay"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/operator/top"
	"github.com/weirhq/weir/cmd/weir/internal/serve"
)

// commands are those that do the work, in the order of the help.
func commands() []*cobra.Command {
	return []*cobra.Command{
		serve.Command(), serve.DemoCommand(), serve.ProxyCommand(), replay.Command(), offline.ConfigCommand(),
		offline.UnitTestCommand(),
		top.Command(), operator.WhyCommand(), operator.AdminCommand(), operator.QuotaCommand(), operator.ClusterCommand(),
		load.Command(),
	}
}
