package config

import (
	"errors"
	"math"
	"regexp/syntax"
	"strconv"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// clientNet is client.net.
var clientNet = func() policy.Text {
	t, err := policy.ClientNet(24, 64)
	if err != nil {
		panic(err)
	}
	return t
}()

// native returns what a checked expression of the type string is without CEL, nil if it needs CEL.
func native(e ast.Expr) policy.Text { //nolint:ireturn // one of several
	switch e.Kind() {
	case ast.LiteralKind:
		if s, ok := e.AsLiteral().(types.String); ok {
			return policy.ConstantText(string(s))
		}
	case ast.IdentKind:
		return variableOf(e).native
	case ast.SelectKind:
		if of, name := entryOf(e); of.entry != nil && !e.AsSelect().IsTestOnly() {
			return of.entry(name)
		}
	case ast.CallKind:
		return nativeCall(e)
	default:
	}
	return nil
}

func nativeCall(e ast.Expr) policy.Text { //nolint:ireturn // one of several
	if of, name := entryOf(e); of.entry != nil {
		return of.entry(name)
	}
	c := e.AsCall()
	args := c.Args()
	switch {
	case c.IsMemberFunction() || len(args) != 2:
		return nil
	case c.FunctionName() == nameQueryParam && variableOf(args[0]).name == nameQuery:
		if name, ok := constantString(args[1]); ok {
			return policy.QueryText(name)
		}
	case c.FunctionName() == operators.Add:
		if left, right := native(args[0]), native(args[1]); left != nil && right != nil {
			return policy.ConcatText(left, right)
		}
	}
	return nil
}

func constantString(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// constantInt returns the number that an expression is.
func constantInt(e ast.Expr) (int64, bool) {
	if e.Kind() == ast.LiteralKind {
		n, ok := e.AsLiteral().(types.Int)
		return int64(n), ok
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Negate {
		n, ok := constantInt(e.AsCall().Args()[0])
		return -n, ok
	}
	return 0, false
}

// nativeNumber returns what a checked expression of the type int is without CEL, nil if it needs CEL: request.cost, and int() of
// a text that needs no CEL.
func nativeNumber(e ast.Expr) policy.Number { //nolint:ireturn // one of several
	switch {
	case e.Kind() == ast.IdentKind && e.AsIdent() == nameCost:
		return requestCost{}
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.TypeConvertInt && len(e.AsCall().Args()) == 1:
		if t := native(e.AsCall().Args()[0]); t != nil {
			return &parsedNumber{t}
		}
	default:
	}
	return nil
}

// requestCost is request.cost.
type requestCost struct{}

func (requestCost) Int(r *policy.Request) (int64, error) { return costOf(r), nil }
func (requestCost) String() string                       { return nameCost }

// parsedNumber is a text that is read as a decimal number.
type parsedNumber struct{ text policy.Text }

var errNoNumber = errors.New("is no whole number")

// numberTexts are buffers for texts that are read as numbers.
var numberTexts = sync.Pool{New: func() any { return new([]byte) }}

func (n *parsedNumber) Int(r *policy.Request) (int64, error) {
	buffer, _ := numberTexts.Get().(*[]byte)
	defer numberTexts.Put(buffer)
	b, err := n.text.AppendTo((*buffer)[:0], r)
	if err != nil {
		return 0, err
	}
	*buffer = b
	if i, ok := parseInt(b); ok {
		return i, nil
	}
	i, err := strconv.ParseInt(string(b), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return i, nil // the largest or smallest there is: no request can cost that
	}
	return 0, &numberError{n.String(), string(b)}
}

// parseInt reads a decimal number with or without a sign, as int() of CEL does.
func parseInt(b []byte) (n int64, ok bool) {
	digits := b
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits = b[1:]
	}
	const most = 19 // digits of an int64
	if len(digits) == 0 || len(digits) > most {
		i, err := strconv.ParseInt(string(b), 10, 64)
		return i, err == nil
	}
	var u uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = 10*u + uint64(c-'0')
	}
	negative := b[0] == '-'
	switch {
	case !negative && u > math.MaxInt64, negative && u > -math.MinInt64:
		return 0, false
	case negative:
		return int64(-u), true
	}
	return int64(u), true
}

func (n *parsedNumber) String() string { return "int(" + n.text.String() + ")" }

// numberError is the error of a text that is no number.
type numberError struct{ source, got string }

func (e *numberError) Error() string {
	return "weir: cost " + strconv.Quote(e.source) + ": " + strconv.Quote(yamlread.Shorten(e.got)) + " " + errNoNumber.Error()
}

func (e *numberError) Unwrap() error { return errNoNumber }

// secretText is a text whose source has values of the environment.
type secretText struct {
	policy.Text

	shown string
}

// String is the text as the configuration writes it.
func (t *secretText) String() string { return t.shown }

// Parts returns what the text is computed from: see [policy.Text].
func (t *secretText) Parts() (parts []policy.Text, all bool) { return []policy.Text{t.Text}, true }

// secretNumber is a number whose source has values of the environment.
type secretNumber struct {
	policy.Number

	shown string
}

// String is the number as the configuration writes it.
func (n *secretNumber) String() string { return n.shown }

// permitted adds a mistake for what is of the right type and can nevertheless not be evaluated: the names in a header are not
// known, patterns must be constant, and networks must be networks.
func (d *decoder) permitted(s yamlread.Scalar, checked *cel.Ast) bool {
	ok := true
	info := checked.NativeRep().SourceInfo()
	refuse := func(e ast.Expr, message, fix string) {
		ok = false
		at := 0
		if r, known := info.GetOffsetRange(e.ID()); known {
			location := info.GetLocationByOffset(r.Start)
			at = offset(s.Text, location.Line(), location.Column())
		}
		d.WrongWithin(s, at, message, fix)
	}
	root := ast.NavigateAST(checked.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.AllMatcher()) {
		switch e.Kind() {
		case ast.IdentKind:
			if name := e.AsIdent(); variableOf(e).find != nil && !asked(e) {
				refuse(e, name+" can only be asked for a name", "write "+name+`["name"], or "name" in `+name)
			}
		case ast.CallKind:
			c := e.AsCall()
			args := c.Args()
			switch c.FunctionName() {
			case overloads.Matches:
				pattern := args[len(args)-1]
				text, constant := constantString(pattern)
				if !constant {
					refuse(pattern, "the pattern of matches must be a constant", `write matches("^/v[0-9]+/"), for instance`)
				} else if _, err := syntax.Parse(text, syntax.Perl); err != nil {
					message := "is not a regular expression"
					if !s.FromEnv {
						message = "is not a regular expression: " + err.Error()
					}
					refuse(pattern, message, "see the syntax of RE2")
				}
			case "replace":
				if text, constant := constantString(args[1]); !constant || len(text) > mostReplacement {
					refuse(args[1], "what replace puts in must be a constant of at most 64 bytes",
						`write replace("-", "_"), for instance`)
				}
			case nameInNetwork:
				if name := variableOf(args[0]).name; name == nameClient || name == nameClientNet {
					refuse(args[0], name+" is a key, and may be no address", "write "+nameClientIP)
				}
				if text, constant := constantString(args[1]); constant {
					if _, valid := parseNetwork(text); !valid {
						refuse(args[1], "must be a network, or an address", `write "10.0.0.0/8", for instance`)
					}
				}
			}
		default:
		}
	}
	return ok
}

// asked reports whether a lookup is asked for a name.
func asked(e ast.NavigableExpr) bool {
	parent, ok := e.Parent()
	if !ok {
		return false
	}
	switch parent.Kind() {
	case ast.SelectKind:
		return true
	case ast.CallKind:
		c := parent.AsCall()
		args := c.Args()
		switch c.FunctionName() {
		case operators.Index:
			return len(args) == 2 && args[0].ID() == e.ID()
		case operators.In:
			return len(args) == 2 && args[1].ID() == e.ID()
		}
	default:
	}
	return false
}
