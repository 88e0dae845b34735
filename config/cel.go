package config

import (
	"net/netip"
	"net/textproto"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/policy"
)

// mostNesting bounds the depth of expressions, and mostNodes their size.
const (
	mostNesting = 50
	mostNodes   = 2000
	// stringsVersion is the version of the extensions of CEL for strings.
	stringsVersion = 5
	// mostPrecision is how many decimals format writes, and mostReplacement how long a text may be that replace puts in for
	// each place: both grow a text before its size is looked at.
	mostPrecision   = 100
	mostReplacement = 64
)

// The names of what a request has in expressions.
const (
	nameMethod     = "request.method"
	nameHost       = "request.host"
	namePath       = "request.path"
	nameQuery      = "request.query"
	nameRoute      = "request.route"
	nameProtocol   = "request.protocol"
	nameHeaders    = "request.headers"
	nameCost       = "request.cost"
	nameClient     = "client"
	nameClientIP   = "client.ip"
	nameClientNet  = "client.net"
	nameWildcards  = "path"
	nameAttributes = "attributes"
	nameNow        = "now"

	nameQueryParam = "queryParam"
	nameSplit      = "split"
	nameInNetwork  = "inNetwork"
)

// variable is what expressions know of a request by a name: a text, a map of texts, or something else.
type variable struct {
	name string
	is   *cel.Type
	// of finds a text, and native is the same without CEL, nil if only CEL has it.
	of     func(r *policy.Request) string
	native policy.Text
	// find finds a text of a map by its canonical name, and whether there is one. Expressions can ask it for nothing else: see
	// [decoder.permitted]. entry is the same without CEL.
	find      func(r *policy.Request, name string) (string, bool)
	canonical func(name string) string
	entry     func(name string) policy.Text
}

// variables are all of them, in the order in which they are told.
var variables = []variable{
	text(nameMethod, policy.MethodText(), (*policy.Request).CleanMethod),
	text(nameHost, policy.HostText(), (*policy.Request).CleanHost),
	text(namePath, policy.PathText(), (*policy.Request).CleanPath),
	text(nameQuery, nil, func(r *policy.Request) string { return r.Query }),
	text(nameRoute, policy.RouteText(), func(r *policy.Request) string { return r.Route }),
	text(nameProtocol, policy.ProtocolText(), func(r *policy.Request) string { return r.Protocol }),
	texts(nameHeaders, policy.HeaderText, textproto.CanonicalMIMEHeaderKey, headerOf),
	{name: nameCost, is: cel.IntType},
	address(nameClient, policy.Client()),
	address(nameClientIP, policy.ClientIP()),
	address(nameClientNet, clientNet),
	texts(nameWildcards, policy.PathValueText, itself, func(r *policy.Request, name string) (string, bool) {
		text := r.PathValue(name)
		return text, text != ""
	}),
	texts(nameAttributes, policy.AttributeText, itself, func(r *policy.Request, name string) (string, bool) {
		text, ok := r.Attributes[name]
		return text, ok
	}),
	{name: nameNow, is: cel.TimestampType},
}

func text(name string, native policy.Text, of func(r *policy.Request) string) variable {
	return variable{name: name, is: cel.StringType, native: native, of: of}
}

// address is a text that has to be spelled.
func address(name string, native policy.Text) variable {
	return text(name, native, func(r *policy.Request) string { return spell(native, r) })
}

func texts(name string, entry func(name string) policy.Text, canonical func(name string) string,
	find func(r *policy.Request, name string) (string, bool),
) variable {
	return variable{
		name: name, is: cel.MapType(cel.StringType, cel.StringType), find: find, canonical: canonical, entry: entry,
	}
}

func itself(name string) string { return name }

// headerOf is the first value of a header field.
func headerOf(r *policy.Request, name string) (string, bool) {
	if name == "Host" {
		return r.CleanHost(), r.Host != ""
	}
	return r.HeaderValue(name)
}

// none is what expressions do not know.
var none variable

// variableOf is the one that an expression is, none if it is another expression.
func variableOf(e ast.Expr) *variable {
	if e.Kind() == ast.IdentKind {
		return variableNamed(e.AsIdent())
	}
	return &none
}

func variableNamed(name string) *variable {
	if i := slices.IndexFunc(variables, func(v variable) bool { return v.name == name }); i >= 0 {
		return &variables[i]
	}
	return &none
}

// entryOf is the map that an expression asks, as in map.name and map["name"], and for which name. The map is none if it does
// something else.
func entryOf(e ast.Expr) (of *variable, name string) {
	switch e.Kind() {
	case ast.SelectKind:
		of, name = variableOf(e.AsSelect().Operand()), e.AsSelect().FieldName()
	case ast.CallKind:
		if args := e.AsCall().Args(); e.AsCall().FunctionName() == operators.Index && len(args) == 2 {
			var constant bool
			if name, constant = constantString(args[1]); constant {
				of = variableOf(args[0])
			}
		}
	default:
	}
	if of == nil || of.find == nil {
		return &none, ""
	}
	return of, name
}

// variableNames are those of all variables.
func variableNames() []string {
	names := make([]string, len(variables))
	for i := range variables {
		names[i] = variables[i].name
	}
	return names
}

// newEnvironment declares what expressions can use.
func newEnvironment() (*cel.Env, error) {
	declared := make([]cel.EnvOption, 0, len(variables))
	for i := range variables {
		declared = append(declared, cel.Variable(variables[i].name, variables[i].is))
	}
	return cel.NewEnv(append(declared,
		ext.Strings(ext.StringsVersion(stringsVersion), ext.StringsMaxPrecision(mostPrecision)),
		cel.Function(nameQueryParam, cel.Overload(
			"queryParam_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(func(query, name ref.Val) ref.Val {
				q, ok1 := query.Value().(string)
				n, ok2 := name.Value().(string)
				if !ok1 || !ok2 {
					return types.NewErr("queryParam needs a text")
				}
				of := policy.Request{Query: q}
				return types.String(of.QueryValue(n))
			}),
		)),
		cel.Macros(cel.GlobalMacro(nameQueryParam, 1,
			func(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
				return f.NewCall(nameQueryParam, f.NewSelect(f.NewIdent("request"), "query"), args[0]), nil
			},
		)),
		cel.Function(nameInNetwork, cel.Overload(
			"inNetwork_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(address, network ref.Val) ref.Val {
				a, ok1 := address.Value().(string)
				n, ok2 := network.Value().(string)
				if !ok1 || !ok2 {
					return types.NewErr("inNetwork needs an address and a network")
				}
				p, ok := parseNetwork(n)
				if !ok {
					return types.NewErr("inNetwork needs a network such as 10.0.0.0/8")
				}
				return types.Bool(inNetwork(a, p))
			}),
		)),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(mostExpression),
		cel.ParserRecursionLimit(mostNesting),
		cel.ExpressionNodeLimit(mostNodes),
	)...)
}

// parseNetwork reads a network, or an address.
func parseNetwork(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = clientip.Fold(a)
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil
}

// inNetwork reports whether an address is in a network; what is no address is in none.
func inNetwork(address string, network netip.Prefix) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && network.Contains(clientip.Fold(a))
}
