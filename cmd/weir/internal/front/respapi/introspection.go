package respapi

import (
	"path"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

func commandSubcommands() []spec {
	return []spec{
		{
			"count", 2, 0, 0, "", "Answers how many commands there are",
			func(c *conn, w *resp.Writer, _ [][]byte) { w.Int(int64(len(c.s.commands.sorted))) },
		},
		{"docs", -2, 0, 0, "[command-name [command-name ...]]", "Documents commands", commandDocs},
		{"getkeys", -3, 0, 0, "command [arg ...]", "Answers the keys of a command", commandGetKeys},
		{"info", -2, 0, 0, "[command-name [command-name ...]]", "Tells of commands what clients need", commandInfo},
		{"list", -2, 0, 0, "[FILTERBY PATTERN pattern]", "Answers the names of commands", commandList},
	}
}

func commandAll(c *conn, w *resp.Writer) {
	w.Array(len(c.s.commands.sorted))
	for _, cmd := range c.s.commands.sorted {
		w.Any(cmd.told())
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
		var told any
		if cmd := c.s.commands.find(name); cmd != nil {
			told = cmd.told()
		}
		if w.Any(told); tooMuch(w, start) {
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
	names := []any{}
	for _, cmd := range c.s.commands.sorted {
		if matches(pattern, cmd.name) {
			names = append(names, cmd.name)
		}
	}
	w.Any(names)
}

// matches reports whether a name is of a pattern.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
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

// named are the names of the flags that have one.
func (f commandFlags) named(names ...string) (all resp.Names) {
	for i, name := range names {
		if name != "" && f&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}

// categories are the classes into which Redis sorts a command.
func (c *command) categories() resp.Names {
	names := c.flags.named("@read", "@write", "@fast", "", "@admin")
	if c.flags&fast == 0 {
		names = append(names, "@slow")
	}
	if c.group == connectionGroup {
		names = append(names, "@connection")
	}
	return names
}

// sub is a subcommand as a command of its own.
func (c *command) sub(s spec) command {
	s.name, s.flags = c.name+"|"+s.name, c.flags|s.flags
	return command{spec: s, group: c.group}
}

// told is what clients need to know of a command.
func (c *command) told() []any {
	subs := make([]any, 0, len(c.subs))
	for _, s := range c.subs {
		sub := c.sub(s)
		subs = append(subs, sub.told())
	}
	return []any{
		c.name, c.arity, c.flags.named("readonly", "write", "fast", "no_auth", "admin"),
		c.key, c.key, min(c.key, 1), // the first key, the last key, the step
		c.categories(),
		[]any{}, // hints for clients that spread commands over servers
		c.keys(), subs,
	}
}

// keys is where the key of a command is.
func (c *command) keys() []any {
	if c.key == 0 {
		return []any{}
	}
	flags := resp.Names{"RO", "ACCESS"}
	if c.flags&write != 0 {
		flags = resp.Names{"RW", "ACCESS", "UPDATE"}
	}
	return []any{resp.Pairs{
		"flags", flags,
		"begin_search",
		resp.Pairs{"type", "index", "spec", resp.Pairs{"index", c.key}},
		"find_keys",
		resp.Pairs{"type", "range", "spec", resp.Pairs{"lastkey", 0, "keystep", 1, "limit", 0}},
	}}
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
		if w.Any(cmd.docs()); tooMuch(w, start) {
			return
		}
	}
}

// docs documents a command.
func (c *command) docs() resp.Pairs {
	told := resp.Pairs{"summary", c.summary, "since", "1.0.0", "group", c.group}
	if arguments := parseArguments(c.arguments); len(arguments) > 0 {
		told = append(told, "arguments", toldOf(arguments))
	}
	subs := make(resp.Pairs, 0, 2*len(c.subs))
	for _, s := range c.subs {
		sub := c.sub(s)
		subs = append(subs, sub.name, sub.docs())
	}
	if len(subs) > 0 {
		told = append(told, "subcommands", subs)
	}
	return told
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

func toldOf(all []argument) []any {
	told := make([]any, len(all))
	for i := range all {
		told[i] = all[i].told()
	}
	return told
}

func (a *argument) told() resp.Pairs {
	kind := "string"
	switch {
	case len(a.parts) > 0:
		kind = "block"
	case a.token != "" && strings.EqualFold(a.token, a.name):
		kind = "pure-token"
	}
	told := resp.Pairs{"name", a.name, "type", kind}
	if a.token != "" {
		told = append(told, "token", a.token)
	}
	var flags resp.Names
	if a.optional {
		flags = append(flags, "optional")
	}
	if a.multiple {
		flags = append(flags, "multiple")
	}
	if len(flags) > 0 {
		told = append(told, "flags", flags)
	}
	if len(a.parts) > 0 {
		told = append(told, "arguments", toldOf(a.parts))
	}
	return told
}
