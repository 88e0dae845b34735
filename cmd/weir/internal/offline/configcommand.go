package offline

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// ConfigCommand returns the command "config".
func ConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and explain configurations",
		Long: `config checks whether a configuration can be used, and shows what it means: which
limits apply to which requests. It changes nothing, and asks no server.`,
		Example: `  weir config check weir.yaml
  weir config explain weir.yaml --request 'POST /login' --client 192.0.2.1
  weir config schema > weir.schema.json`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(checkCommand(), explainCommand(), schemaCommand())
	return cmd
}

// yamlFiles lets shells complete files of YAML.
func yamlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
