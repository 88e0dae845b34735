package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
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
"replay" shows what a limit would have done to the traffic in an access log.

A configuration has many limits, and rules that say which of them apply to a
request: "config" checks and explains one, "test" runs its unit tests, and
"replay" shows what another one would change.

A running server is asked by "why" why it has refused a request, by "top" and
"admin" what it does, and by "quota" what is left of a month.`,
		Example: `  weir serve
  weir proxy --upstream http://127.0.0.1:3000 --limit 10/s --burst 20
  weir replay access.log --limit 1/s --burst 5 --by client.ip
  weir config check weir.yaml
  weir test weir_test.yaml`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	printVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printVersion {
			return printText(cmd, version().short()+"\n")
		}
		return cmd.Help()
	}
	root.DisableSuggestions = true // report makes its own
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands()...)
	root.AddCommand(versionCommand())
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("")
	describeCompletion(root)
	completeValues(root)
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
				return flags.Errorf("help: no command %s%s", flags.Quote(args[len(args)-1]), didYouMean(cmd, args[len(args)-1]))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
