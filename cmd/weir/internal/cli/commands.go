package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admincmd"
	"github.com/weirhq/weir/cmd/weir/internal/benchcmd"
	"github.com/weirhq/weir/cmd/weir/internal/clustercmd"
	"github.com/weirhq/weir/cmd/weir/internal/configcmd"
	"github.com/weirhq/weir/cmd/weir/internal/policytest"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
	"github.com/weirhq/weir/cmd/weir/internal/quotacmd"
	"github.com/weirhq/weir/cmd/weir/internal/replay"
	"github.com/weirhq/weir/cmd/weir/internal/serve"
	"github.com/weirhq/weir/cmd/weir/internal/topcmd"
	"github.com/weirhq/weir/cmd/weir/internal/whycmd"
)

// commands are those that do the work, in the order of the help.
func commands() []*cobra.Command {
	return []*cobra.Command{
		serve.Command(), serve.DemoCommand(), proxy.Command(), replay.Command(), configcmd.Command(), policytest.Command(),
		topcmd.Command(), whycmd.Command(), admincmd.Command(), quotacmd.Command(), clustercmd.Command(), benchcmd.Command(),
	}
}
