package offline

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
)

// ConfigCommand returns the command "config".
func ConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and explain configurations",
		Long: `config checks whether a configuration can be used, and shows what it means:
which limits apply to which requests. It changes nothing, and asks no server.`,
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

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configurations",
		Long: `schema prints a JSON Schema, with which editors complete and check a
configuration while it is written. It cannot know all that "weir config check"
does, such as whether an expression is right. An editor that has the YAML
language server finds it by a first line such as
  # yaml-language-server: $schema=weir.schema.json`,
		Example: `  weir config schema > weir.schema.json
  weir config schema | jq .title`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := cmd.OutOrStdout().Write(config.Schema()); err != nil {
				return fmt.Errorf("weir: writing the schema: %w", err)
			}
			return nil
		},
	}
}
