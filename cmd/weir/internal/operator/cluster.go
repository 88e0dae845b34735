package operator

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// ClusterCommand returns the command "cluster".
func ClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look at the nodes of a cluster, and replace one whose disk is lost",
		Long: `cluster asks a running weir serve about the nodes of the section "cluster" of
its file, and changes them. Any node that is up can be asked.

A node whose disk was lost or is damaged does not take part again by itself, as
it would vote with what it does not know any more. Remove it and add it, then
empty its directory, write "join: true" into the section "cluster" of its file,
and start it. It votes once it has what the others have.`,
		Example: `  weir cluster members
  weir cluster remove node1 --reason 'its disk was replaced'
  weir cluster add node1 http://10.0.0.1:7090`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(membersCommand(), removeCommand(), addCommand())
	return cmd
}

// clusterFlags adds the flags of a question about the nodes, which may have to choose a leader first.
func (q *question) clusterFlags(cmd *cobra.Command) {
	q.moreFlags(cmd, func(fs *pflag.FlagSet) { q.server.RegisterWithin(time.Minute, fs) })
}

func membersCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "members",
		Short: "List the nodes of the cluster",
		Long: `members lists the nodes of the cluster: which of them count for a majority, and
which leads the others.`,
		Example: "  weir cluster members\n  weir cluster members --server http://10.0.0.2:7070 --json",
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, MembersPath, nil, members.write)
	})
	q.clusterFlags(cmd)
	return cmd
}

// members is a table of nodes.
var members = list[Member]{
	head: []string{"node", "url", "id", "state"},
	row: func(m *Member) []string {
		state := "votes"
		switch {
		case !m.Started:
			state = "added, not started yet"
		case !m.Votes:
			state = "catches up"
		case m.Leads:
			state = "votes, leads"
		}
		return []string{m.Name, m.URL, m.ID, state}
	},
}

func removeCommand() *cobra.Command {
	return memberChange(&cobra.Command{
		Use:   "remove",
		Short: "Remove a node from the cluster",
		Long: `remove removes a node from the cluster, for ever: what is on its disk is of no
use then. The others must have a majority. If it is up, it hands over what it
owns, and says in its log and its status that it was removed. If it is to come
back, add it, and start it with an empty directory and "join: true".`,
		Example: `  weir cluster remove node1 --reason 'its disk was replaced'
  weir cluster remove node1 --server http://10.0.0.2:7070`,
	}, MemberRemovePath, "%s is removed: to have it back, add it\n", "NODE")
}

func addCommand() *cobra.Command {
	return memberChange(&cobra.Command{
		Use:   "add",
		Short: "Add a node to the cluster",
		Long: `add adds a node with its name and its URL of "peers", which all nodes have. It
is started with an empty directory and "join: true", and votes once it has what
the others have. The others must be up, and connected for 5 s. A node that is
alone needs "name", "peers" and "address" first: docs/durable.md.`,
		Example: `  weir cluster add node1 http://10.0.0.1:7090
  weir cluster add node1 http://10.0.0.1:7090 --server http://10.0.0.2:7070 --reason 'a new disk'`,
	}, MemberAddPath, "%s is added: start it with an empty directory and join: true\n", "NODE", "URL")
}

// memberChange makes a command that changes the nodes, and says what was done.
func memberChange(cmd *cobra.Command, path, done string, arguments ...string) *cobra.Command {
	q := &question{}
	reason := ""
	cmd = q.command(cmd, func(ctx context.Context, c *Client, w io.Writer) error {
		change := MemberChange{Name: q.args[0], Reason: reason}
		if len(q.args) > 1 {
			change.URL = q.args[1]
		}
		var a Answer[Changed]
		if err := c.Post(ctx, path, &change, &a); err != nil {
			return err
		}
		return q.print(w, a.JSON, func(w io.Writer, _ terminal.Output) {
			fmt.Fprintf(w, done, terminal.Printable(change.Name))
		})
	}, arguments...)
	q.clusterFlags(cmd)
	reasonFlag(cmd, &reason, false)
	return cmd
}

// Member is a node of the cluster that owns the policies of durability cluster.
type Member struct {
	// ID is what the cluster knows the node by, in hexadecimal. One that is removed and added again gets another one.
	ID   string `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
	// Started says that the node has been started, Votes that it counts for a majority, and Leads that it leads the others.
	Started bool `json:"started"`
	Votes   bool `json:"votes"`
	Leads   bool `json:"leads"`
}

// MemberChange removes a node from the cluster, or adds one.
type MemberChange struct {
	Name string `json:"name"`
	// URL is that of the node in "peers", for one that is added.
	URL    string `json:"url,omitempty"`
	Reason string `json:"reason,omitempty"` // at most 1024 bytes
}

// lead is what the numbers of a store or a cluster come to.
func lead(out terminal.Output, what, text string, bad bool) string {
	if bad {
		text = out.Red(text)
	}
	return out.Bold(what) + ": " + text
}

// StoreState returns in words whether a store replies, by its own report, and whether that is bad.
func StoreState(status any) (text string, bad bool) {
	s, _ := status.(map[string]any)
	since := ""
	if breaker, ok := s["breaker"].(map[string]any); ok {
		if t, err := time.Parse(time.RFC3339, statusWord(breaker, "since")); err == nil {
			since = ", since " + Time(t)
		}
	}
	if yes, _ := s["answers"].(bool); yes {
		return "available" + since, false
	}
	return "UNAVAILABLE" + since + because(s) + "; the fail of each policy decides", true
}

// ClusterState returns which node owns the durable limits, as far as one node knows, and whether that is bad: it reaches none.
func ClusterState(status any) (text string, bad bool) {
	s, _ := status.(map[string]any)
	joined, _ := s["joined"].(bool)
	owns, _ := s["owns"].(bool)
	unreached, _ := s["owner_unreached_ns"].(float64)
	switch {
	case !joined:
		return "IT IS NOT JOINED" + because(s) + "; the fail of each policy decides", true
	case owns:
		return "this node owns the limits", false
	case statusWord(s, "owner") == "":
		return "NO OWNER IS KNOWN; the fail of each policy decides", true
	case unreached > 0:
		return "NO OWNER CAN BE REACHED for " + Seconds(unreached/float64(time.Second)) + ": the last one was " +
			terminal.Printable(statusWord(s, "owner")) + "; the fail of each policy decides", true
	default:
		return "the owner of the limits is " + terminal.Printable(statusWord(s, "owner")), false
	}
}

func because(s map[string]any) string {
	why := statusWord(s, "error")
	if why == "" {
		return ""
	}
	return ": " + terminal.Printable(strings.TrimPrefix(why, "weir: "))
}

func statusWord(s map[string]any, name string) string {
	text, _ := s[name].(string)
	return text
}
