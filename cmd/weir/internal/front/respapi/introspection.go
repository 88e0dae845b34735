package respapi

import (
	"path"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

func commandSubcommands() []subcommand {
	return []subcommand{
		{
			"count", 2, 0, "", "Answers how many commands there are",
			func(c *conn, w *resp.Writer, _ [][]byte) { w.Int(int64(len(c.s.commands.sorted))) },
		},
		{"docs", -2, 0, "[command-name [command-name ...]]", "Documents commands", commandDocs},
		{"getkeys", -3, 0, "command [arg ...]", "Answers the keys of a command", commandGetKeys},
		{"info", -2, 0, "[command-name [command-name ...]]", "Tells of commands what clients need", commandInfo},
		{"list", -2, 0, "[FILTERBY PATTERN pattern]", "Answers the names of commands", commandList},
	}
}

func commandAll(c *conn, w *resp.Writer) {
	w.Array(len(c.s.commands.sorted))
	for _, cmd := range c.s.commands.sorted {
		cmd.write(w)
	}
}

func commandInfo(c *conn, w *resp.Writer, args [][]byte) {
	if len(args) == 2 {
		commandAll(c, w)
		return
	}
	start := w.Len()
	w.Array(len(args) - 2)
	for _, name := range args[2:] {
		if cmd := c.s.commands.find(name); cmd != nil {
			cmd.write(w)
		} else {
			w.NullArray()
		}
		if tooMuch(w, start) {
			return
		}
	}
}

// mostTold is how long a reply about commands may be, which can be asked for many times in one command: more than all of them
// together need.
const mostTold = 128 << 10

// tooMuch reports whether the reply that began at start has become too long. If so, it is an error now.
func tooMuch(w *resp.Writer, start int) bool {
	if w.Len()-start <= mostTold {
		return false
	}
	w.Truncate(start)
	w.Error("ERR the reply would have more than " + strconv.Itoa(mostTold) + " bytes: ask for fewer commands")
	return true
}

func commandList(c *conn, w *resp.Writer, args [][]byte) {
	pattern := "*"
	if len(args) > 2 {
		if len(args) != 5 || !equalFold(args[2], "filterby") || !equalFold(args[3], "pattern") {
			w.Error("ERR syntax error")
			return
		}
		pattern = strings.ToLower(string(args[4]))
	}
	var names []string
	for _, cmd := range c.s.commands.sorted {
		if ok, err := path.Match(pattern, cmd.name); ok && err == nil {
			names = append(names, cmd.name)
		}
	}
	w.Array(len(names))
	for _, name := range names {
		w.BulkString(name)
	}
}

func commandGetKeys(c *conn, w *resp.Writer, args [][]byte) {
	switch cmd := c.s.commands.find(args[2]); {
	case cmd == nil:
		w.Error("ERR Invalid command specified")
	case !takes(cmd.arity, len(args)-2):
		w.Error("ERR Invalid number of arguments specified for command")
	case cmd.key == 0 || cmd.key >= len(args)-2:
		w.Error("ERR The command has no key arguments")
	default:
		w.Array(1)
		w.Bulk(args[2+cmd.key])
	}
}

// names are those that Redis has for flags.
func (f commandFlags) names() []string {
	var names []string
	for i, name := range []string{"readonly", "write", "fast", "no_auth", "admin"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// categories are the classes into which Redis sorts a command.
func (c *command) categories() []string {
	var names []string
	for i, name := range []string{"@read", "@write", "@fast", "", "@admin"} {
		if name != "" && c.flags&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if c.flags&fast == 0 {
		names = append(names, "@slow")
	}
	if c.group == "" {
		names = append(names, "@connection")
	}
	return names
}

func writeSet(w *resp.Writer, names []string) {
	w.Set(len(names))
	for _, name := range names {
		w.Simple(name)
	}
}

// write tells of a command what clients need to know.
func (c *command) write(w *resp.Writer) {
	w.Array(10)
	w.BulkString(c.name)
	w.Int(int64(c.arity))
	writeSet(w, c.flags.names())
	step := min(c.key, 1)
	w.Int(int64(c.key)) // the first key
	w.Int(int64(c.key)) // the last key
	w.Int(int64(step))
	writeSet(w, c.categories())
	w.Array(0) // hints for clients that spread commands over servers
	c.writeKeys(w)
	w.Array(len(c.subs))
	for i := range c.subs {
		sub := &c.subs[i]
		full := command{name: c.name + "|" + sub.name, arity: sub.arity, flags: c.flags | sub.flags, group: c.group}
		full.write(w)
	}
}

// writeKeys tells where the key of a command is.
func (c *command) writeKeys(w *resp.Writer) {
	if c.key == 0 {
		w.Array(0)
		return
	}
	w.Array(1)
	w.Map(3)
	w.BulkString("flags")
	if c.flags&write != 0 {
		writeSet(w, []string{"RW", "ACCESS", "UPDATE"})
	} else {
		writeSet(w, []string{"RO", "ACCESS"})
	}
	w.BulkString("begin_search")
	w.Map(2)
	w.BulkString("type")
	w.BulkString("index")
	w.BulkString("spec")
	w.Map(1)
	w.BulkString("index")
	w.Int(int64(c.key))
	w.BulkString("find_keys")
	w.Map(2)
	w.BulkString("type")
	w.BulkString("range")
	w.BulkString("spec")
	w.Map(3)
	w.BulkString("lastkey")
	w.Int(0)
	w.BulkString("keystep")
	w.Int(1)
	w.BulkString("limit")
	w.Int(0)
}

func commandDocs(c *conn, w *resp.Writer, args [][]byte) {
	var found []*command
	if len(args) == 2 {
		found = c.s.commands.sorted
	}
	for _, name := range args[2:] {
		if cmd := c.s.commands.find(name); cmd != nil {
			found = append(found, cmd)
		}
	}
	start := w.Len()
	w.Map(len(found))
	for _, cmd := range found {
		w.BulkString(cmd.name)
		cmd.writeDocs(w)
		if tooMuch(w, start) {
			return
		}
	}
}

// writeDocs documents a command.
func (c *command) writeDocs(w *resp.Writer) {
	parts := 3
	arguments := parseArguments(c.arguments)
	if len(arguments) > 0 {
		parts++
	}
	if len(c.subs) > 0 {
		parts++
	}
	group := c.group
	if group == "" {
		group = "connection"
	}
	w.Map(parts)
	w.BulkString("summary")
	w.BulkString(c.summary)
	w.BulkString("since")
	w.BulkString("1.0.0")
	w.BulkString("group")
	w.BulkString(group)
	if len(arguments) > 0 {
		w.BulkString("arguments")
		w.Array(len(arguments))
		for _, a := range arguments {
			a.write(w)
		}
	}
	if len(c.subs) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.subs))
		for i := range c.subs {
			sub := &c.subs[i]
			full := command{name: c.name + "|" + sub.name, group: group, summary: sub.summary, arguments: sub.arguments}
			w.BulkString(full.name)
			full.writeDocs(w)
		}
	}
}

// argument is one of a command, as COMMAND DOCS tells of it.
type argument struct {
	name, token        string
	optional, multiple bool
	parts              []argument // of one that consists of several
}

// parseArguments reads arguments as they are written for people: "key cost [WAIT seconds] [id ...]". What stands in brackets may
// be left out, what is in capitals is sent as it is.
func parseArguments(s string) []argument {
	var all []argument
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		var a argument
		if inside, after, ok := bracketed(s); ok {
			a, s = optional(inside), after
		} else {
			word, after, _ := strings.Cut(s, " ")
			a, s = argument{name: word}, after
			if isToken(word) {
				a = argument{name: strings.ToLower(word), token: word}
			}
		}
		all = append(all, a)
	}
	return all
}

// optional is what stands in brackets as one argument.
func optional(inside string) argument {
	multiple := strings.HasSuffix(inside, " ...")
	parts := parseArguments(strings.TrimSuffix(inside, " ..."))
	if len(parts) == 0 {
		return argument{name: inside, optional: true, multiple: multiple}
	}
	first := parts[0]
	switch {
	case first.token != "" && len(parts) == 2 && parts[1].token == "":
		return argument{name: parts[1].name, token: first.token, optional: true, multiple: multiple}
	case len(parts) == 1:
		first.optional, first.multiple = true, multiple || first.multiple
		return first
	}
	return argument{name: first.name, optional: true, multiple: multiple, parts: parts}
}

// bracketed splits off what stands in brackets at the start of s.
func bracketed(s string) (inside, after string, ok bool) {
	depth := 0
	for i, c := range s {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth == 0 {
			return s[min(1, i):i], s[i+1:], i > 0
		}
	}
	return "", "", false
}

// isToken reports whether a word is sent as it is.
func isToken(word string) bool {
	return word != "" && word == strings.ToUpper(word) && word != strings.ToLower(word) && !strings.Contains(word, "|")
}

func (a *argument) write(w *resp.Writer) {
	parts := 2
	for _, has := range []bool{a.token != "", a.optional || a.multiple, len(a.parts) > 0} {
		if has {
			parts++
		}
	}
	w.Map(parts)
	w.BulkString("name")
	w.BulkString(a.name)
	w.BulkString("type")
	switch {
	case len(a.parts) > 0:
		w.BulkString("block")
	case a.token != "" && strings.EqualFold(a.token, a.name):
		w.BulkString("pure-token")
	default:
		w.BulkString("string")
	}
	if a.token != "" {
		w.BulkString("token")
		w.BulkString(a.token)
	}
	if a.optional || a.multiple {
		var flags []string
		if a.optional {
			flags = append(flags, "optional")
		}
		if a.multiple {
			flags = append(flags, "multiple")
		}
		w.BulkString("flags")
		writeSet(w, flags)
	}
	if len(a.parts) > 0 {
		w.BulkString("arguments")
		w.Array(len(a.parts))
		for i := range a.parts {
			a.parts[i].write(w)
		}
	}
}
