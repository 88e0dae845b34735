package operator

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// ClusterCommand returns the command "cluster".
func ClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look at the nodes of a cluster, and replace one whose disk is lost",
		Long: `cluster asks a running weir serve about the nodes of the section "cluster" of its
file, and changes them. Any node that is up can be asked.

A node whose disk was lost or is damaged does not take part again by itself, as it
would vote with what it does not know any more. Remove it and add it, then empty
its directory, write "join: true" into the section "cluster" of its file, and start
it. It votes once it has what the others have.`,
		Example: `  weir cluster members
  weir cluster remove node1 --reason 'its disk was replaced'
  weir cluster add node1 http://10.0.0.1:7090`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(membersCommand(), removeCommand(), addCommand())
	return cmd
}

// clusterFlags adds the flags of a question about the nodes.
func (q *question) clusterFlags(cmd *cobra.Command) {
	cmd.Long += ExitStatus
	fs := cmd.Flags()
	fs.SortFlags = false
	q.server.RegisterWithin(time.Minute, fs) // the nodes may have to choose a leader first
	fs.BoolVar(&q.asJSON, "json", false, "print the JSON that the server answers")
}

// memberReason adds --reason.
func memberReason(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", `why, for the audit log, in at most 1024 bytes (default "": none)`)
}

func membersCommand() *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:     "members [flags]",
		Short:   "List the nodes of the cluster",
		Long:    `members lists the nodes of the cluster: which of them count for a majority, and which leads the others.`,
		Example: "  weir cluster members\n  weir cluster members --server http://10.0.0.2:7070 --json",
		Args:    flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer Answer[[]Member]
			err := q.ask(func(c *Client) error { return c.Get(cmd.Context(), MembersPath, nil, &answer) })
			if err != nil {
				return err
			}
			return q.print(cmd.OutOrStdout(), answer.JSON, func(w io.Writer, out terminal.Output) {
				writeMembers(w, out, answer.Value)
			})
		},
	}
	q.clusterFlags(cmd)
	return cmd
}

// writeMembers writes a table of nodes.
func writeMembers(w io.Writer, out terminal.Output, all []Member) {
	rows := make([][]string, 1, 1+len(all))
	rows[0] = []string{"node", "url", "id", "state"}
	for i := range all {
		m := &all[i]
		state := "votes"
		switch {
		case !m.Started:
			state = "added, not started yet"
		case !m.Votes:
			state = "catches up"
		case m.Leads:
			state = "votes, leads"
		}
		rows = append(rows, []string{m.Name, m.URL, m.ID, state})
	}
	WriteTable(w, out, rows, 0)
}

func removeCommand() *cobra.Command {
	var q question
	reason := ""
	cmd := &cobra.Command{
		Use:   "remove NODE [flags]",
		Short: "Remove a node from the cluster",
		Long: `remove removes a node from the cluster, for ever: what is on its disk is of no use
then. The others must have a majority. If it is to come back, add it, and start it
with an empty directory and "join: true".`,
		Example: `  weir cluster remove node1 --reason 'its disk was replaced'
  weir cluster remove node1 --server http://10.0.0.2:7070`,
		Args: arguments("NODE"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.changeMembers(cmd, MemberRemovePath, &MemberChange{Name: args[0], Reason: reason},
				terminal.Printable(args[0])+" is removed: to have it back, add it")
		},
	}
	q.clusterFlags(cmd)
	memberReason(cmd, &reason)
	return cmd
}

func addCommand() *cobra.Command {
	var q question
	reason := ""
	cmd := &cobra.Command{
		Use:   "add NODE URL [flags]",
		Short: "Add a node to the cluster",
		Long: `add adds a node with its name and its URL of "peers", which all nodes have. It is
started with an empty directory and "join: true", and votes once it has what the
others have. The others must be up, and connected for 5 s.`,
		Example: `  weir cluster add node1 http://10.0.0.1:7090
  weir cluster add node1 http://10.0.0.1:7090 --server http://10.0.0.2:7070 --reason 'a new disk'`,
		Args: arguments("NODE", "URL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.changeMembers(cmd, MemberAddPath, &MemberChange{Name: args[0], URL: args[1], Reason: reason},
				terminal.Printable(args[0])+" is added: start it with an empty directory and join: true")
		},
	}
	q.clusterFlags(cmd)
	memberReason(cmd, &reason)
	return cmd
}

// changeMembers makes a change, and says what was done.
func (q *question) changeMembers(cmd *cobra.Command, path string, change *MemberChange, done string) error {
	var answer Answer[Changed]
	err := q.ask(func(c *Client) error { return c.Post(cmd.Context(), path, change, &answer) })
	if err != nil {
		return err
	}
	return q.print(cmd.OutOrStdout(), answer.JSON, func(w io.Writer, _ terminal.Output) {
		fmt.Fprintln(w, done)
	})
}

// arguments wants these.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return flags.Errorf("%d arguments: must be %v", len(args), names)
		}
		return nil
	}
}
