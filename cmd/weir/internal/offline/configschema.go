package offline

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
)

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
