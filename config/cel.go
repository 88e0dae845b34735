package config

import (
	"net/netip"
	"net/url"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/weirhq/weir/clientip"
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
	nameInNetwork  = "inNetwork"
)

// variableNames are those of all variables.
var variableNames = []string{
	nameMethod, nameHost, namePath, nameQuery, nameRoute, nameProtocol, nameHeaders, nameCost, nameClient, nameClientIP,
	nameClientNet, nameWildcards, nameAttributes, nameNow,
}

// newEnvironment declares what expressions can use.
func newEnvironment() (*cel.Env, error) {
	texts := cel.MapType(cel.StringType, cel.StringType)
	return cel.NewEnv(
		cel.Variable(nameMethod, cel.StringType),
		cel.Variable(nameHost, cel.StringType),
		cel.Variable(namePath, cel.StringType),
		cel.Variable(nameQuery, cel.StringType),
		cel.Variable(nameRoute, cel.StringType),
		cel.Variable(nameProtocol, cel.StringType),
		cel.Variable(nameHeaders, texts),
		cel.Variable(nameCost, cel.IntType),
		cel.Variable(nameClient, cel.StringType),
		cel.Variable(nameClientIP, cel.StringType),
		cel.Variable(nameClientNet, cel.StringType),
		cel.Variable(nameWildcards, texts),
		cel.Variable(nameAttributes, texts),
		cel.Variable(nameNow, cel.TimestampType),
		ext.Strings(ext.StringsVersion(stringsVersion), ext.StringsMaxPrecision(mostPrecision)),
		cel.Function(nameQueryParam, cel.Overload(
			"queryParam_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(func(query, name ref.Val) ref.Val {
				q, ok1 := query.Value().(string)
				n, ok2 := name.Value().(string)
				if !ok1 || !ok2 {
					return types.NewErr("queryParam needs a text")
				}
				return types.String(queryParam(q, n))
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
	)
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

// queryParam is the first value of a parameter of a query, read like [net/url.ParseQuery] does.
func queryParam(query, name string) string {
	for query != "" {
		var parameter string
		parameter, query, _ = strings.Cut(query, "&")
		if parameter == "" || strings.Contains(parameter, ";") {
			continue
		}
		key, value, _ := strings.Cut(parameter, "=")
		if decoded, err := url.QueryUnescape(key); err != nil || decoded != name {
			continue
		}
		if decoded, err := url.QueryUnescape(value); err == nil {
			return decoded
		}
	}
	return ""
}
