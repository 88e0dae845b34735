package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const (
	mostExpression = 4096
	mostKeyParts   = 16
	// mostCost bounds what one evaluation may do, in the units of CEL: some milliseconds.
	mostCost = 100_000
	// mostMemory bounds what one evaluation may hold, in elements of lists and tens of characters.
	mostMemory = 1 << 18
	// mostIssues is how many mistakes of one expression are told.
	mostIssues = 5
)

// expressions compiles expressions, the same one once.
type expressions struct {
	vocabulary

	now      func() time.Time
	compiled map[string]*compiled
}

// compiled is an expression that is free of mistakes.
type compiled struct {
	program cel.Program
	text    policy.Text // what it is without CEL, nil if it needs CEL
	parts   textParts   // of one that needs CEL
	ast     *cel.Ast
}

// vocabulary is what expressions can use.
type vocabulary struct {
	env   *cel.Env
	names []string // of variables and functions
}

// vocabularyOf makes them: they are made once: they are the same for all files.
var vocabularyOf = sync.OnceValues(func() (vocabulary, error) {
	env, err := newEnvironment()
	if err != nil {
		return vocabulary{}, fmt.Errorf("weir: expressions: %w", err)
	}
	v := vocabulary{env: env}
	for _, declared := range env.Variables() {
		if name := declared.Name(); variableNamed(name) != &none {
			v.names = append(v.names, name)
		}
	}
	for name := range env.Functions() {
		if yamlread.IsVariable(name) {
			v.names = append(v.names, name)
		}
	}
	slices.Sort(v.names)
	return v, nil
})

func newExpressions(now func() time.Time) (*expressions, error) {
	v, err := vocabularyOf()
	return &expressions{vocabulary: v, now: now, compiled: map[string]*compiled{}}, err
}

// isWritten reports whether a text can be an expression. If not, the mistake is added.
func (d *decoder) isWritten(v yamlread.Value, text, must, example string, want *cel.Type) bool {
	switch meant := keyMeant(text); {
	case len(text) > mostExpression:
		d.Wrong(v, fmt.Sprintf("has %d bytes: an expression has at most %d", len(text), mostExpression),
			"split it among several rules")
	case strings.TrimSpace(text) == "":
		d.Wrong(v, "is empty: must be "+must, example)
	case meant != "" && want == cel.StringType:
		has := "has the form of the flag --by"
		if strings.HasPrefix(text, "$") {
			has = "is a variable of nginx"
		} else if strings.HasPrefix(text, "header.") || strings.HasPrefix(text, "headers.") {
			has = "is no field of the header"
		}
		d.Wrong(v, has+": must be "+must, "write "+meant)
	default:
		return true
	}
	return false
}

// compile reads an expression whose result is of a type. The mistakes are added.
func (d *decoder) compile(v yamlread.Value, must string, want *cel.Type) (yamlread.Scalar, *compiled) {
	example := map[*cel.Type]string{
		cel.StringType: `write client.ip or request.headers["x-api-key"], for instance`,
		cel.BoolType:   `write request.path.startsWith("/v2"), for instance`,
		cel.IntType:    `write 5 or int(request.headers["x-cost"]), for instance`,
	}[want]
	s, ok := d.Scalar(v, must, example)
	if !ok || !d.isWritten(v, s.Text, must, example, want) {
		return s, nil
	}
	cached := want.String() + " " + s.Text
	if c := d.expressions.compiled[cached]; c != nil {
		return s, c
	}
	parsed, issues := d.expressions.env.Parse(s.Text)
	if issues.Err() != nil {
		d.issues(s, issues.Errors()[:1], "is not an expression: ")
		return s, nil
	}
	checked, issues := d.expressions.env.Check(parsed)
	if issues.Err() != nil {
		d.unchecked(s, issues.Errors())
		return s, nil
	}
	if got := checked.OutputType(); !got.IsExactType(want) {
		fix := example
		switch {
		case want.IsExactType(cel.StringType) && got.IsExactType(cel.IntType):
			fix = "write string(" + yamlread.Shorten(v.Node.Value) + ")"
		case want.IsExactType(cel.IntType) && (got.IsExactType(cel.StringType) || got.IsExactType(cel.DoubleType)):
			fix = "write int(" + yamlread.Shorten(v.Node.Value) + ")"
		case want.IsExactType(cel.StringType) && got.Kind() == cel.ListKind:
			fix = "write a list of YAML: [client.ip, request.method], for instance"
		}
		d.Wrong(v, fmt.Sprintf("is an expression of the type %s: must be %s", got, must), fix)
		return s, nil
	}
	if !d.permitted(s, checked) {
		return s, nil
	}
	program, err := d.expressions.env.Program(
		checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(mostCost), cel.MemoryLimit(mostMemory),
	)
	if err != nil {
		message := "cannot be used: " + err.Error()
		if s.FromEnv {
			message = "cannot be used once the environment is put in"
		}
		d.Wrong(v, message, example)
		return s, nil
	}
	c := &compiled{program: program, ast: checked}
	if want == cel.StringType {
		c.text = native(checked.NativeRep().Expr())
		if c.text == nil {
			c.parts = partsOf(checked.NativeRep())
		}
	}
	d.expressions.compiled[cached] = c
	return s, c
}

var (
	undeclared = regexp.MustCompile(`undeclared reference to '([^']*)'`)
	container  = regexp.MustCompile(` \(in container '[^']*'\)`)
	hyphenated = regexp.MustCompile(`request\.headers\.(\w+(?:-\w+)+)`)
	identifier = regexp.MustCompile(`^[A-Za-z_][\w.]*`)
)

// unchecked adds the mistakes of an expression that is written right and cannot be used. One is behind all where a field of the
// header has a hyphen, which is a minus.
func (d *decoder) unchecked(s yamlread.Scalar, all []*cel.Error) {
	if field := hyphenated.FindStringSubmatchIndex(s.Text); field != nil && !s.FromEnv {
		d.WrongWithin(s, field[0], "the name of a field with a hyphen stands in brackets",
			"write request.headers["+strconv.Quote(s.Text[field[2]:field[3]])+"]")
		return
	}
	d.issues(s, all[:min(len(all), mostIssues)], "")
}

// issues adds the mistakes that CEL has found.
func (d *decoder) issues(s yamlread.Scalar, all []*cel.Error, before string) {
	for _, issue := range all {
		at := offset(s.Text, issue.Location.Line(), issue.Location.Column())
		message := container.ReplaceAllString(issue.Message, "")
		message, _, _ = strings.Cut(message, "\n")
		fix := "see the documentation of expressions for what there is"
		switch {
		case s.FromEnv:
			message, fix = "does not compile; why is not shown, as the environment has been put in", "try it without ${...}"
			before = ""
		case strings.HasPrefix(message, "undeclared reference"):
			found := undeclared.FindStringSubmatch(message)
			message, fix = d.expressions.undeclared(s.Text, at, found)
			if len(found) > 1 { // CEL points behind the name of a function, and to the last dot of a variable
				name := found[1]
				if !strings.HasSuffix(s.Text[:at], name) {
					name = name[:max(0, strings.LastIndexByte(name, '.'))]
				}
				at -= len(s.Text[:at]) - len(strings.TrimSuffix(s.Text[:at], name))
			}
		case strings.HasSuffix(message, "does not support field selection") && strings.HasSuffix(s.Text[:at], nameClient):
			at -= len(nameClient) // client.ipp: to CEL that is something of the variable client
			message, fix = d.expressions.undeclared(s.Text, at, []string{"", nameClient})
		case strings.HasPrefix(message, "Syntax error: "):
			message, _, _ = strings.Cut(strings.TrimPrefix(message, "Syntax error: "), " expecting")
			fix = "see the brackets, quotes and operators before it"
			if strings.HasPrefix(message, "token recognition error at: '=") {
				message, fix = "a single = is no operator", "write =="
			}
		case strings.HasPrefix(message, "found no matching overload"):
			fix = "see the types: string(x) makes a string, int(x) a number"
		}
		d.WrongWithin(s, at, before+message, fix)
	}
}

// namesMeant are names of other programs for what a request has.
var namesMeant = map[string]string{
	"ip": nameClientIP, "remote_addr": nameClientIP, "remoteaddr": nameClientIP, "remote_ip": nameClientIP,
	"client_ip": nameClientIP, "clientip": nameClientIP, "source_ip": nameClientIP,
	"uri": namePath, "url": namePath, "header": nameHeaders,
}

// nearest is the variable or function whose name is nearest, "" if none is near. Of those with a dot the part behind it counts,
// which may be a method of something, as in request.path.startWith.
func (e *expressions) nearest(name string) string {
	dot := strings.LastIndexByte(name, '.') + 1
	var last []string
	for _, n := range e.names {
		if rest, same := strings.CutPrefix(n, name[:dot]); same && dot > 0 {
			last = append(last, rest)
		}
	}
	if near := yamlread.Nearest(name[dot:], last); near != "" {
		return name[:dot] + near
	}
	if dot == 0 || len(last) == 0 {
		return cmp.Or(yamlread.Nearest(name, e.names), yamlread.Nearest(name[dot:], e.names))
	}
	return ""
}

// undeclared says that there is no such variable or function.
func (e *expressions) undeclared(text string, at int, found []string) (message, fix string) {
	name := ""
	if len(found) > 1 {
		name = found[1]
	}
	if chain := identifier.FindString(text[min(at, len(text)):]); len(chain) > len(name) && strings.HasPrefix(chain, name) {
		name = strings.TrimSuffix(chain, ".")
	}
	message = "there is no variable or function " + strconv.Quote(yamlread.Shorten(name))
	if meant := namesMeant[strings.TrimPrefix(strings.ToLower(name), "request.")]; meant != "" {
		return message, "did you mean " + strconv.Quote(meant) + "?"
	}
	for _, n := range e.names {
		if strings.HasSuffix(n, "."+name) || strings.HasPrefix(n, name+".") {
			return message, "did you mean " + strconv.Quote(n) + "?"
		}
	}
	near := e.nearest(name)
	if near == "" {
		return message, "there are " + yamlread.OneOf(variableNames()) + "; a constant text needs quotes of its own"
	}
	return message, "did you mean " + strconv.Quote(near) + "?"
}

// offset is the byte of a text that a line, counted from 1, and a column, counted from 0, stand for.
func offset(text string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	for ; column > 0 && at < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// key reads what requests are counted under: an expression, or a list of them.
func (d *decoder) key(v yamlread.Value) policy.Text { //nolint:ireturn // one of several
	const must = "an expression of the type string, or a list of them"
	if v.Node.Kind != yaml.SequenceNode {
		return d.textExpression(v, must)
	}
	items, ok := d.list(v, must)
	if !ok {
		return nil
	}
	if len(items) > mostKeyParts {
		d.Wrong(v, fmt.Sprintf("has %d parts: there must be at most %d", len(items), mostKeyParts), "join some of them by +")
		return nil
	}
	parts := make([]policy.Text, 0, len(items))
	for _, item := range items {
		if t := d.textExpression(item, "an expression of the type string"); t != nil {
			parts = append(parts, t)
		}
	}
	return policy.JoinText(parts...)
}

// tierBy reads what chooses a tier.
func (d *decoder) tierBy(v yamlread.Value) policy.Text { //nolint:ireturn // one of several
	if v.Node.Kind == yaml.MappingNode {
		d.Wrong(v, "by is the expression that chooses the tier: no tier can have this name", "choose another name for the tier")
		return nil
	}
	return d.textExpression(v, "an expression of the type string")
}

func (d *decoder) textExpression(v yamlread.Value, must string) policy.Text { //nolint:ireturn // one of several
	s, c := d.compile(v, must, cel.StringType)
	switch {
	case c == nil:
		return nil
	case c.text != nil && s.FromEnv:
		return &secretText{c.text, v.Node.Value}
	case c.text != nil:
		return c.text
	}
	return &celText{
		celValue: celValue[string]{evaluation: d.evaluation(s, c)},
		piece:    closure(d.expressions.now, c.ast.NativeRep().Expr(), (*closures).piece),
		parts:    c.parts,
	}
}

// when reads a condition.
func (d *decoder) when(v yamlread.Value) policy.Condition { //nolint:ireturn // one of several
	s, c := d.compile(v, "an expression of the type bool", cel.BoolType)
	if c == nil {
		return nil
	}
	return &celCondition{value(d, s, c, (*closures).condition)}
}

// cost reads a number of permits.
func (d *decoder) cost(v yamlread.Value) policy.Number { //nolint:ireturn // one of several
	const must = "a number of permits from 0 to 10^15, or an expression of the type int"
	s, c := d.compile(v, must, cel.IntType)
	if c == nil {
		return nil
	}
	n, constant := constantInt(c.ast.NativeRep().Expr())
	switch {
	case constant && (n < 0 || n > algo.MaxPermits):
		d.Wrong(v, "must be "+must, "write 0 or more")
		return nil
	case constant && s.FromEnv:
		return &secretNumber{policy.FixedNumber(n), v.Node.Value}
	case constant:
		return policy.FixedNumber(n)
	}
	if number := nativeNumber(c.ast.NativeRep().Expr()); number != nil && !s.FromEnv {
		return number
	}
	return &celNumber{value(d, s, c, (*closures).number)}
}

// value is a compiled expression, with its closure by one of the methods of closures.
func value[T any, F ~func(r *policy.Request) (T, bool)](
	d *decoder, s yamlread.Scalar, c *compiled, by func(c *closures, e ast.Expr) F,
) celValue[T] {
	return celValue[T]{d.evaluation(s, c), closure(d.expressions.now, c.ast.NativeRep().Expr(), by)}
}

func (d *decoder) evaluation(s yamlread.Scalar, c *compiled) evaluation {
	return evaluation{program: c.program, source: strings.TrimSpace(s.Node.Value), secret: s.FromEnv, now: d.expressions.now}
}
