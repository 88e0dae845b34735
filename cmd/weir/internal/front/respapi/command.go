package respapi

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
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

// command is one that the server answers.
type command struct {
	// name is in lower case.
	name string
	// arity is how many arguments there are, the name included; -n is at least n.
	arity int
	flags commandFlags
	// key is the index of the only key among the arguments, 0 if there is none.
	key int
	// group is the heading under which COMMAND DOCS lists it. Default: "connection".
	group string
	// summary is one line without a full stop.
	summary string
	// arguments are those after the name, as redis-cli shows them: "key cost [WAIT seconds]".
	arguments string
	// arityError is the answer to a wrong number of arguments. Default: that of Redis.
	arityError string

	// run answers: it writes exactly one reply. args begin with the name as it was sent, there are as many as arity says, and
	// they are valid until run returns. ctx ends when the server cuts off what it is still doing.
	run func(ctx context.Context, w *resp.Writer, args [][]byte)

	// session takes the place of run for commands about the connection.
	session func(c *conn, w *resp.Writer, args [][]byte)
	// subs are the subcommands that session has.
	subs []subcommand
}

// commander has commands.
type commander interface {
	commands() []command
}
