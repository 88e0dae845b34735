package respapi

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/keyset"
)

// The groups of commands.
const (
	connectionGroup = "connection"
	serverGroup     = "server"
)

// commandFlags are what COMMAND tells of a command.
type commandFlags uint16

const (
	// readonly changes no state.
	readonly commandFlags = 1 << iota
	// write changes the state of a key.
	write
	// fast takes the same short time always.
	fast
	// noAuth is answered before AUTH.
	noAuth
	// admin is for operators.
	admin
)

// spec is a row of a table of commands.
type spec struct {
	// name is in lower case.
	name string
	// arity is how many arguments there are, the name included, and that of the command before a subcommand; -n is at least n.
	arity int
	flags commandFlags
	// key is the index of the only key among the arguments, 0 if there is none.
	key int
	// arguments are those after the name, as redis-cli shows them: "key cost [WAIT seconds]".
	arguments string
	// summary is one line without a full stop.
	summary string
	// run answers: it writes exactly one reply. args begin with the name as it was sent, there are as many as arity says, and
	// they are valid until run returns.
	run runner
}

type runner func(c *conn, w *resp.Writer, args [][]byte)

// command is one that the server answers.
type command struct {
	spec

	// group is the heading under which COMMAND DOCS lists it.
	group string
	// arityError is the answer to a wrong number of arguments. Default: that of Redis.
	arityError string
	// subs are the subcommands that run has.
	subs []spec
	// plan returns the plan under which run would take n permits of the key, if it would do nothing else and answer
	// with reply; otherwise nil. Default: nil, the command is never answered together with others.
	plan func(args [][]byte) (p *keyset.Plan, n int64)
}

// commander has commands.
type commander interface {
	commands() []command
}

// grouped are the commands of a table. usage is the answer to a wrong number of arguments, nil for that of Redis.
func grouped(group string, usage func(*spec) string, rows ...spec) []command {
	all := make([]command, len(rows))
	for i := range rows {
		all[i] = command{spec: rows[i], group: group}
		if usage != nil {
			all[i].arityError = usage(&rows[i])
		}
	}
	return all
}

// without is a command that needs nothing of its connection.
func without(run func(ctx context.Context, w *resp.Writer, args [][]byte)) runner {
	return func(c *conn, w *resp.Writer, args [][]byte) { run(c.s.ctx, w, args) }
}

// answers is a command whose answer is always the same.
func answers(value func(w *resp.Writer)) runner {
	return func(_ *conn, w *resp.Writer, _ [][]byte) { value(w) }
}
