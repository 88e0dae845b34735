package respapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// register holds the commands of a server by their names. It does not change once the server is made.
type register struct {
	byName map[string]*command
	sorted []*command
}

// mostName is longer than any name of a command.
const mostName = 64

func newRegister(sources ...commander) (*register, error) {
	r := &register{byName: make(map[string]*command)}
	for _, source := range sources {
		for _, c := range source.commands() {
			switch {
			case c.name == "" || len(c.name) > mostName || c.name != strings.ToLower(c.name):
				return nil, fmt.Errorf("weir: the name of the RESP command %q is not in lower case, or has more than %d bytes",
					c.name, mostName)
			case c.arity == 0, c.run == nil:
				return nil, fmt.Errorf("weir: the RESP command %q is not complete", c.name)
			case r.byName[c.name] != nil:
				return nil, fmt.Errorf("weir: there are two RESP commands %q", c.name)
			}
			r.byName[c.name] = &c
			r.sorted = append(r.sorted, &c)
		}
	}
	slices.SortFunc(r.sorted, func(a, b *command) int { return strings.Compare(a.name, b.name) })
	return r, nil
}

// find returns the command with this name in whatever case, nil if there is none.
func (r *register) find(name []byte) *command {
	var space [mostName]byte
	if len(name) > mostName {
		return nil
	}
	lower := space[:len(name)]
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	return r.byName[string(lower)]
}

// takes reports whether a command can have that many arguments, its name included.
func takes(arity, n int) bool { return n == arity || arity < 0 && n >= -arity }

// container is a command of the group "server" that has subcommands, and HELP.
func container(name, summary string, f commandFlags, subs ...spec) command {
	run := func(c *conn, w *resp.Writer, args [][]byte) {
		for i := range subs {
			sub := &subs[i]
			switch {
			case !equalFold(args[1], sub.name):
			case !takes(sub.arity, len(args)):
				wrongArity(w, name+"|"+sub.name)
				return
			default:
				sub.run(c, w, args)
				return
			}
		}
		if equalFold(args[1], "help") {
			help(w, name, subs)
			return
		}
		w.Error("ERR unknown subcommand '" + clip(args[1]) + "'. Try " + strings.ToUpper(name) + " HELP.")
	}
	return command{spec: spec{name: name, arity: -2, flags: f, summary: summary, run: run}, group: serverGroup, subs: subs}
}

func help(w *resp.Writer, name string, subs []spec) {
	w.Array(2*len(subs) + 3)
	w.Simple(strings.ToUpper(name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for i := range subs {
		w.Simple(strings.TrimSpace(strings.ToUpper(subs[i].name) + " " + subs[i].arguments))
		w.Simple("    " + subs[i].summary + ".")
	}
	w.Simple("HELP")
	w.Simple("    Print this help.")
}

func wrongArity(w *resp.Writer, name string) {
	w.Error("ERR wrong number of arguments for '" + name + "' command")
}

// clip is text of a client for an error, without what would make it long.
func clip(text []byte) string { return string(text[:min(len(text), 128)]) }

// unknown returns a command that does not exist, as Redis does.
func unknown(w *resp.Writer, args [][]byte) {
	var b strings.Builder
	b.WriteString("ERR unknown command '" + clip(args[0]) + "', with args beginning with: ")
	for _, a := range args[1:] {
		left := 128 - b.Len()
		if left <= 0 {
			break
		}
		b.WriteString("'" + string(a[:min(len(a), left)]) + "' ")
	}
	w.Error(b.String())
}

// equalFold reports whether b is name, which is in lower case.
func equalFold(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}
