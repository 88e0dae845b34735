package config

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/weirhq/weir/policy"
)

// textParts is what an expression takes from a request.
type textParts struct {
	texts []policy.Text
	all   bool // it takes nothing else, and does not depend on the time
}

// partsOf is what an expression takes from a request.
func partsOf(checked *ast.AST) textParts {
	p := textParts{all: true}
	p.add(ast.NavigateAST(checked))
	return p
}

func (p *textParts) add(e ast.NavigableExpr) {
	switch e.Kind() {
	case ast.IdentKind, ast.SelectKind, ast.CallKind:
		if t := p.part(e); t != nil {
			p.texts = append(p.texts, t)
			return
		}
	default:
	}
	for _, child := range e.Children() {
		p.add(child)
	}
}

// part is the text of a request that an expression stands for, nil if it stands for none or for several.
func (p *textParts) part(e ast.NavigableExpr) policy.Text { //nolint:ireturn // one of several
	switch e.Kind() {
	case ast.IdentKind:
		of := variableOf(e)
		if of.native == nil && of != &none {
			p.all = false
		}
		return of.native
	case ast.CallKind:
		c := e.AsCall()
		args := c.Args()
		if c.FunctionName() == operators.In && len(args) == 2 {
			if name, ok := constantString(args[0]); ok && variableOf(args[1]).entry != nil {
				return variableOf(args[1]).entry(name)
			}
		}
		if c.FunctionName() == operators.Add {
			return nil // of its operands
		}
		return native(e)
	case ast.SelectKind:
		if of, name := entryOf(e); of.entry != nil {
			return of.entry(name)
		}
	default:
	}
	return nil
}
