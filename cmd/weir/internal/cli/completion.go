package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// describeCompletion adds to the commands that cobra makes what all others have.
func describeCompletion(root *cobra.Command) {
	completion, _, err := root.Find([]string{"completion"})
	if err != nil || completion == root {
		return
	}
	completion.Short = "Print a completion script for a shell"
	completion.Long = `completion prints a script with which a shell completes the commands, flags and
values of weir. The help of each shell says where the script belongs.`
	completion.Example = `  source <(weir completion bash)
  weir completion zsh > "${fpath[1]}/_weir"`
	completion.Args = nil
	completion.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return flags.Errorf("no completion for %s: must be bash, zsh, fish or powershell%s",
				flags.Quote(args[0]), didYouMean(cmd, args[0]))
		}
		return cmd.Help()
	}
	for _, shell := range completion.Commands() {
		shell.Short = "Print a completion script for " + shell.Name()
		shell.Example = "  weir completion " + shell.Name() + "\n  weir completion " + shell.Name() + " --no-descriptions"
	}
}

// completeValues lets shells complete the values of all flags below cmd: files for a FILE, words for a type with a method
// Words, and nothing, rather than files, for all others.
func completeValues(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind == "bool" || kind == "FILE" {
			return
		}
		var words []cobra.Completion
		if v, ok := f.Value.(interface{ Words() []string }); ok {
			words = v.Words()
		}
		// The only error is that the flag has a completion of its own already.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	})
	for _, sub := range cmd.Commands() {
		completeValues(sub)
	}
}
