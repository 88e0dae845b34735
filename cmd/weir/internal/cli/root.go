package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Keep traffic below what a service can take",
		Long: `weir limits the rate of requests. Each key, such as a client's address, has a
token bucket: it holds a burst of permits, every request takes one, and they
come back at a fixed rate. A request that finds no permit is refused, and told
when to come back.

Use it in one of three ways: "serve" answers other programs that ask whether a
request is within its limit, "proxy" stands in front of an HTTP service, and
"replay" shows what a limit would have done to the traffic in an access log.`,
		Example: `  weir serve
  weir proxy --upstream http://127.0.0.1:8080 --limit 10/s --burst 20
  weir replay access.log --limit 1/s --burst 5 --by client.ip`,
		Version:           version().short(),
		Args:              nil, // an unknown command is told before its flags
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.DisableSuggestions = true // report makes its own
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(commands()...)
	root.AddCommand(versionCommand())
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("")
	describeCompletion(root)
	return root
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Explain a command",
		Long:  `help explains a command, with its flags and examples. It is the same as --help.`,
		Example: `  weir help serve
  weir help completion bash`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if cmd, _, err := root.Find(args); err == nil {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && cmd.HasAvailableSubCommands() {
				return misuse.Errorf("help: no command %s%s", misuse.Quote(args[len(args)-1]), didYouMean(cmd, args[len(args)-1]))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

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
			return misuse.Errorf("no completion for %s: must be bash, zsh, fish or powershell%s",
				misuse.Quote(args[0]), didYouMean(cmd, args[0]))
		}
		return cmd.Help()
	}
	for _, shell := range completion.Commands() {
		shell.Short = "Print a completion script for " + shell.Name()
		shell.Example = "  weir completion " + shell.Name() + "\n  weir completion " + shell.Name() + " --no-descriptions"
	}
}
