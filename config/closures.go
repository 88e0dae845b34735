package config

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/policy"
)

// Expressions of the usual kinds are compiled to closures, which take some ten nanoseconds where CEL takes microseconds. ok is
// false where a text is longer than longestText: then CEL decides, which bounds what an evaluation may do.
type (
	boolOf   func(r *policy.Request) (yes, ok bool)
	stringOf func(r *policy.Request) (s string, ok bool)
	intOf    func(r *policy.Request) (n int64, ok bool)
)

// longestText bounds the texts that closures read, and mostWork what one evaluation of a closure may cost then, in the units of
// CEL: half of what CEL may, so that CEL would not have stopped either.
const (
	longestText = 1024
	mostWork    = mostCost / 2
	readText    = longestText/10 + 1 // the cost of looking at a text
)

// closures compiles checked expressions. Each of its methods returns nil for what needs CEL.
type closures struct {
	now  func() time.Time
	cost int
}

// closure compiles an expression by one of the methods of closures.
func closure[F any](now func() time.Time, e ast.Expr, by func(c *closures, e ast.Expr) F) F {
	c := closures{now: now}
	if f := by(&c, e); c.cost <= mostWork {
		return f
	}
	var none F
	return none
}

func (c *closures) condition(e ast.Expr) boolOf {
	c.cost++
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			return func(*policy.Request) (bool, bool) { return bool(b), true }
		}
	case ast.SelectKind:
		if of, name := entryOf(e); e.AsSelect().IsTestOnly() {
			return present(of, name)
		}
	case ast.CallKind:
		return c.call(e.AsCall())
	default:
	}
	return nil
}

// operands are the receiver of a call, if there is one, and its arguments.
func operands(call ast.CallExpr) []ast.Expr {
	if call.IsMemberFunction() {
		return slices.Concat([]ast.Expr{call.Target()}, call.Args())
	}
	return call.Args()
}

func (c *closures) call(call ast.CallExpr) boolOf {
	args := operands(call)
	switch name := call.FunctionName(); name {
	case operators.LogicalNot:
		if f := c.condition(args[0]); f != nil {
			return func(r *policy.Request) (bool, bool) {
				yes, ok := f(r)
				return !yes, ok
			}
		}
	case operators.LogicalAnd, operators.LogicalOr:
		return c.junction(args, name == operators.LogicalOr)
	case operators.Conditional:
		return choose(c.condition(args[0]), c.condition(args[1]), c.condition(args[2]))
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return c.comparison(name, args[0], args[1])
	case operators.In:
		return c.in(args[0], args[1])
	case overloads.StartsWith:
		return c.ofTexts(args, strings.HasPrefix)
	case overloads.EndsWith:
		return c.ofTexts(args, strings.HasSuffix)
	case overloads.Contains:
		return c.ofTexts(args, strings.Contains)
	case overloads.Matches:
		return c.matches(args[0], args[1])
	case nameInNetwork:
		return c.inNetwork(args[0], args[1])
	}
	return nil
}

// junction is the conjunction of conditions, or with or their disjunction. No closure fails, so that the first that decides does.
func (c *closures) junction(args []ast.Expr, or bool) boolOf {
	all := make([]boolOf, 0, len(args))
	for _, arg := range args {
		f := c.condition(arg)
		if f == nil {
			return nil
		}
		all = append(all, f)
	}
	return func(r *policy.Request) (bool, bool) {
		for _, f := range all {
			if yes, ok := f(r); !ok || yes == or {
				return or, ok
			}
		}
		return !or, true
	}
}

// choose is when ? yes : no.
func choose[T any, F ~func(r *policy.Request) (T, bool)](when boolOf, yes, no F) F {
	if when == nil || yes == nil || no == nil {
		return nil
	}
	return func(r *policy.Request) (T, bool) {
		switch first, ok := when(r); {
		case !ok:
			var none T
			return none, false
		case first:
			return yes(r)
		}
		return no(r)
	}
}

// comparison compares two texts, two numbers, or two conditions.
func (c *closures) comparison(operator string, left, right ast.Expr) boolOf {
	if a, b := c.text(left), c.text(right); a != nil && b != nil {
		return compare(a, b, compared[string](operator))
	}
	if a, b := c.number(left), c.number(right); a != nil && b != nil {
		return compare(a, b, compared[int64](operator))
	}
	if operator != operators.Equals && operator != operators.NotEquals {
		return nil
	}
	if a, b := c.condition(left), c.condition(right); a != nil && b != nil {
		return compare(a, b, func(x, y bool) bool { return (x == y) == (operator == operators.Equals) })
	}
	return nil
}

func compare[T any, F ~func(r *policy.Request) (T, bool)](a, b F, holds func(x, y T) bool) boolOf {
	return func(r *policy.Request) (bool, bool) {
		x, ok1 := a(r)
		y, ok2 := b(r)
		return holds(x, y), ok1 && ok2
	}
}

// compared is what an operator of CEL says of two values.
func compared[T string | int64](operator string) func(x, y T) bool {
	switch operator {
	case operators.Equals:
		return func(x, y T) bool { return x == y }
	case operators.NotEquals:
		return func(x, y T) bool { return x != y }
	case operators.Less:
		return func(x, y T) bool { return x < y }
	case operators.LessEquals:
		return func(x, y T) bool { return x <= y }
	case operators.Greater:
		return func(x, y T) bool { return x > y }
	default:
		return func(x, y T) bool { return x >= y }
	}
}

// in is a text in a list of constants, a number in one, or a name in a map of a request.
func (c *closures) in(what, where ast.Expr) boolOf {
	if where.Kind() == ast.IdentKind {
		if name, ok := constantString(what); ok {
			return present(variableOf(where), name)
		}
		return nil
	}
	if where.Kind() != ast.ListKind || where.AsList().Size() == 0 {
		return nil
	}
	list := where.AsList().Elements()
	c.cost += len(list) * readText
	if f := c.text(what); f != nil {
		if texts, ok := constants(list, constantString); ok {
			return func(r *policy.Request) (bool, bool) {
				s, ok := f(r)
				return slices.Contains(texts, s), ok
			}
		}
	}
	if f := c.number(what); f != nil {
		if numbers, ok := constants(list, constantInt); ok {
			return func(r *policy.Request) (bool, bool) {
				n, ok := f(r)
				return slices.Contains(numbers, n), ok
			}
		}
	}
	return nil
}

// constants are the values of a list of constants.
func constants[T any](list []ast.Expr, constant func(e ast.Expr) (T, bool)) ([]T, bool) {
	values := make([]T, 0, len(list))
	for _, e := range list {
		value, ok := constant(e)
		if !ok {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// present reports whether a map of a request has a name. It is nil for what is no map.
func present(of *variable, name string) boolOf {
	if of.find == nil {
		return nil
	}
	name = of.canonical(name)
	return func(r *policy.Request) (bool, bool) {
		_, there := of.find(r, name)
		return there, true
	}
}

func (c *closures) ofTexts(args []ast.Expr, holds func(s, part string) bool) boolOf {
	if a, b := c.text(args[0]), c.text(args[1]); a != nil && b != nil {
		return compare(a, b, holds)
	}
	return nil
}

// matches is a text and a constant pattern.
func (c *closures) matches(what, pattern ast.Expr) boolOf {
	f := c.text(what)
	p, constant := constantString(pattern)
	if f == nil || !constant {
		return nil
	}
	compiled, err := regexp.Compile(p)
	if err != nil {
		return nil
	}
	c.cost += readText * (len(p)/4 + 1)
	return func(r *policy.Request) (bool, bool) {
		s, ok := f(r)
		return ok && compiled.MatchString(s), ok
	}
}

// inNetwork is an address, that of the client or in a text, and a constant network.
func (c *closures) inNetwork(address, network ast.Expr) boolOf {
	text, constant := constantString(network)
	p, valid := parseNetwork(text)
	if !constant || !valid {
		return nil
	}
	if variableOf(address).name == nameClientIP {
		return func(r *policy.Request) (bool, bool) { return p.Contains(clientip.Fold(r.Client)), true }
	}
	f := c.text(address)
	if f == nil {
		return nil
	}
	return func(r *policy.Request) (bool, bool) {
		s, ok := f(r)
		return ok && inNetwork(s, p), ok
	}
}

func (c *closures) text(e ast.Expr) stringOf {
	c.cost += readText
	switch e.Kind() {
	case ast.LiteralKind:
		if s, ok := constantString(e); ok && len(s) <= longestText {
			return func(*policy.Request) (string, bool) { return s, true }
		}
	case ast.IdentKind:
		return bounded(variableOf(e).of)
	case ast.SelectKind:
		if of, name := entryOf(e); !e.AsSelect().IsTestOnly() {
			return entry(of, name)
		}
	case ast.CallKind:
		return c.textCall(e)
	default:
	}
	return nil
}

func (c *closures) textCall(e ast.Expr) stringOf {
	call := e.AsCall()
	args := operands(call)
	switch call.FunctionName() {
	case operators.Index:
		if f := c.segment(args[0], args[1]); f != nil {
			return f
		}
		return entry(entryOf(e))
	case operators.Add:
		return spelled(c.piece(e))
	case nameQueryParam:
		if name, ok := constantString(args[1]); ok && variableOf(args[0]).name == nameQuery {
			return func(r *policy.Request) (string, bool) {
				if len(r.Query) > longestText {
					return "", false
				}
				return r.QueryValue(name), true
			}
		}
	case operators.Conditional:
		return choose(c.condition(args[0]), c.text(args[1]), c.text(args[2]))
	case "lowerAscii":
		return c.mapped(args[0], func(r rune) rune { return asciiOnly(r, unicode.ToLower) })
	case "upperAscii":
		return c.mapped(args[0], func(r rune) rune { return asciiOnly(r, unicode.ToUpper) })
	}
	return nil
}

// pieceOf appends a text to b.
type pieceOf func(b []byte, r *policy.Request) (with []byte, ok bool)

// piece is a text that is appended, so that + and ?: make no string.
func (c *closures) piece(e ast.Expr) pieceOf {
	c.cost++
	if e.Kind() == ast.CallKind {
		switch args := operands(e.AsCall()); e.AsCall().FunctionName() {
		case operators.Add:
			return joined(c.piece(args[0]), c.piece(args[1]))
		case operators.Conditional:
			return chosen(c.condition(args[0]), c.piece(args[1]), c.piece(args[2]))
		}
	}
	if of := variableOf(e); of.name == nameClientIP || of.name == nameClientNet { // they are made, and are never long
		return func(b []byte, r *policy.Request) ([]byte, bool) {
			b, err := of.native.AppendTo(b, r)
			return b, err == nil
		}
	}
	f := c.text(e)
	if f == nil {
		return nil
	}
	return func(b []byte, r *policy.Request) ([]byte, bool) {
		s, ok := f(r)
		return append(b, s...), ok
	}
}

// joined is one piece after the other.
func joined(left, right pieceOf) pieceOf {
	if left == nil || right == nil {
		return nil
	}
	return func(b []byte, r *policy.Request) ([]byte, bool) {
		b, ok := left(b, r)
		if !ok {
			return b, false
		}
		return right(b, r)
	}
}

// chosen is when ? yes : no.
func chosen(when boolOf, yes, no pieceOf) pieceOf {
	if when == nil || yes == nil || no == nil {
		return nil
	}
	return func(b []byte, r *policy.Request) ([]byte, bool) {
		switch first, ok := when(r); {
		case !ok:
			return b, false
		case first:
			return yes(b, r)
		}
		return no(b, r)
	}
}

// spelled is a piece as a text.
func spelled(of pieceOf) stringOf {
	if of == nil {
		return nil
	}
	return func(r *policy.Request) (string, bool) {
		b, ok := of(make([]byte, 0, 128), r)
		return string(b), ok && len(b) <= longestText
	}
}

// segment is text.split("sep")[at], one of the texts between separators. Where there are fewer, CEL fails.
func (c *closures) segment(split, index ast.Expr) stringOf {
	if split.Kind() != ast.CallKind || split.AsCall().FunctionName() != nameSplit {
		return nil
	}
	args := operands(split.AsCall())
	sep, constant := constantString(args[1])
	at, known := constantInt(index)
	of := c.text(args[0])
	if len(args) != 2 || !constant || sep == "" || !known || at < 0 || of == nil {
		return nil
	}
	return func(r *policy.Request) (string, bool) {
		s, ok := of(r)
		for range at {
			var found bool
			if _, s, found = strings.Cut(s, sep); !found {
				return "", false
			}
		}
		s, _, _ = strings.Cut(s, sep)
		return s, ok
	}
}

// asciiOnly is f of a letter of ASCII.
func asciiOnly(r rune, f func(rune) rune) rune {
	if r > unicode.MaxASCII {
		return r
	}
	return f(r)
}

// mapped is a text of which each character is replaced, and is the same where none has to be.
func (c *closures) mapped(e ast.Expr, f func(rune) rune) stringOf {
	of := c.text(e)
	if of == nil {
		return nil
	}
	return func(r *policy.Request) (string, bool) {
		s, ok := of(r)
		if !ok {
			return "", false
		}
		return strings.Map(f, s), true
	}
}

// entry is a text of a map of a request. What is missing is "".
func entry(of *variable, name string) stringOf {
	if of.find == nil {
		return nil
	}
	name = of.canonical(name)
	return bounded(func(r *policy.Request) string {
		s, _ := of.find(r, name)
		return s
	})
}

// bounded is a text of a request if it is not too long.
func bounded(of func(r *policy.Request) string) stringOf {
	if of == nil {
		return nil
	}
	return func(r *policy.Request) (string, bool) {
		s := of(r)
		return s, len(s) <= longestText
	}
}

func (c *closures) number(e ast.Expr) intOf {
	c.cost++
	if n, ok := constantInt(e); ok {
		return func(*policy.Request) (int64, bool) { return n, true }
	}
	switch e.Kind() {
	case ast.IdentKind:
		if variableOf(e).name == nameCost {
			return func(r *policy.Request) (int64, bool) { return costOf(r), true }
		}
	case ast.CallKind:
		return c.numberCall(e.AsCall())
	default:
	}
	return nil
}

func (c *closures) numberCall(call ast.CallExpr) intOf {
	args := operands(call)
	switch name := call.FunctionName(); {
	case name == overloads.Size:
		if f := c.text(args[0]); f != nil {
			return func(r *policy.Request) (int64, bool) {
				s, ok := f(r)
				return int64(utf8.RuneCountInString(s)), ok
			}
		}
	case name == operators.Conditional:
		return choose(c.condition(args[0]), c.number(args[1]), c.number(args[2]))
	case fields[name] != nil && variableOf(args[0]).name == nameNow:
		return c.field(fields[name], args[1:])
	}
	return nil
}

// fields are what CEL takes of a time. Months, and days of a year, are counted from 0.
var fields = map[string]func(t time.Time) int{
	overloads.TimeGetFullYear:   time.Time.Year,
	overloads.TimeGetMonth:      func(t time.Time) int { return int(t.Month()) - 1 },
	overloads.TimeGetDate:       time.Time.Day,
	overloads.TimeGetDayOfMonth: func(t time.Time) int { return t.Day() - 1 },
	overloads.TimeGetDayOfWeek:  func(t time.Time) int { return int(t.Weekday()) },
	overloads.TimeGetDayOfYear:  func(t time.Time) int { return t.YearDay() - 1 },
	overloads.TimeGetHours:      time.Time.Hour,
	overloads.TimeGetMinutes:    time.Time.Minute,
	overloads.TimeGetSeconds:    time.Time.Second,
}

// field is a field of the time, in UTC or a constant zone that has a name.
func (c *closures) field(of func(t time.Time) int, zone []ast.Expr) intOf {
	location := time.UTC
	if len(zone) > 0 {
		name, constant := constantString(zone[0])
		if !constant || strings.Contains(name, ":") {
			return nil
		}
		found, err := time.LoadLocation(name)
		if err != nil {
			return nil
		}
		location = found
	}
	now := c.now
	return func(*policy.Request) (int64, bool) { return int64(of(now().In(location))), true }
}
