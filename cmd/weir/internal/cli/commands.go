package cli

import "github.com/spf13/cobra"

// commands are those that do the work, in the order of the help.
func commands() []*cobra.Command {
	return []*cobra.Command{}
}
