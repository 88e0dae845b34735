package config

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
)

// evaluation is a compiled expression with what it needs to be evaluated.
type evaluation struct {
	program cel.Program
	source  string // as the configuration writes it
	secret  bool   // the environment was put in, so that errors say nothing
	now     func() time.Time
}

// String is the expression as the configuration writes it.
func (e *evaluation) String() string { return e.source }

// eval returns the result.
func (e *evaluation) eval(r *policy.Request) (ref.Val, error) { //nolint:ireturn // what CEL answers
	a, _ := activations.Get().(*activation)
	a.request, a.now = r, e.now
	out, _, err := e.program.Eval(a)
	a.request, a.now = nil, nil
	activations.Put(a)
	switch {
	case err == nil:
		return out, nil
	case e.secret:
		return nil, fmt.Errorf("weir: expression %q cannot be evaluated", e.source)
	}
	return nil, fmt.Errorf("weir: expression %q: %w", e.source, err)
}

// celValue is an expression of a type.
type celValue[T any] struct {
	evaluation

	closure func(r *policy.Request) (T, bool) // nil if only CEL evaluates it
}

// value evaluates it.
func (v *celValue[T]) value(r *policy.Request) (T, error) {
	if v.closure != nil {
		if x, ok := v.closure(r); ok {
			return x, nil
		}
	}
	out, err := v.eval(r)
	if err != nil {
		var none T
		return none, err
	}
	x, ok := out.Value().(T)
	if !ok {
		return x, fmt.Errorf("weir: expression %q is no %T", v.source, x)
	}
	return x, nil
}

// celText is an expression of the type string.
type celText struct {
	celValue[string]

	piece pieceOf // nil if only CEL evaluates it
	parts textParts
}

// Parts returns what the text is computed from: see [policy.Text].
func (t *celText) Parts() (parts []policy.Text, all bool) { return t.parts.texts, t.parts.all }

func (t *celText) AppendTo(b []byte, r *policy.Request) ([]byte, error) {
	if t.piece != nil {
		if with, ok := t.piece(b, r); ok && len(with)-len(b) <= longestText {
			return keytext.Bound(with, len(b)), nil
		}
	}
	s, err := t.value(r)
	if err != nil {
		return b, err
	}
	return keytext.AppendPart(b, s), nil
}

// celCondition is an expression of the type bool.
type celCondition struct{ celValue[bool] }

func (c *celCondition) Holds(r *policy.Request) (bool, error) { return c.value(r) }

// celNumber is an expression of the type int.
type celNumber struct{ celValue[int64] }

func (n *celNumber) Int(r *policy.Request) (int64, error) {
	i, err := n.value(r)
	if n.secret { // what is out of range is shown
		i = min(max(i, -1), algo.MaxPermits+1)
	}
	return i, err
}

var activations = sync.Pool{New: func() any {
	a := &activation{maps: map[string]*lookup{}}
	for i := range variables {
		if v := &variables[i]; v.find != nil {
			a.maps[v.name] = &lookup{a, v}
		}
	}
	return a
}}

// activation is what the variables of expressions stand for in one request.
type activation struct {
	request *policy.Request
	now     func() time.Time
	maps    map[string]*lookup
}

// Parent is that of cel.Activation: there is none.
func (a *activation) Parent() cel.Activation { return nil } //nolint:ireturn // that of the interface

// ResolveName is the value of a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch v := variableNamed(name); {
	case v.name == nameQuery:
		return a.request.QueryInOrder(), true
	case v.of != nil:
		return v.of(a.request), true
	case v.find != nil:
		return a.maps[name], true
	case v.name == nameCost:
		return costOf(a.request), true
	case v.name == nameNow:
		return a.now(), true
	}
	return nil, false
}

// spell is a text of package policy as a string.
func spell(t policy.Text, r *policy.Request) string {
	b, err := t.AppendTo(make([]byte, 0, 64), r)
	if err != nil {
		return ""
	}
	return string(b)
}

// costOf is the cost that a request brings itself.
func costOf(r *policy.Request) int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}

// lookup is a map of texts for CEL, in which what is missing is "". Expressions can only ask it for a name: see
// [decoder.permitted].
type lookup struct {
	in *activation
	of *variable
}

// find returns a text, and whether there is one.
func (l *lookup) find(name string) (string, bool) {
	return l.of.find(l.in.request, l.of.canonical(name))
}

// Get is that of traits.Indexer.
func (l *lookup) Get(index ref.Val) ref.Val { //nolint:ireturn // that of the interface
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	text, _ := l.find(string(name))
	return types.String(text)
}

// IsSet is that of traits.FieldTester.
func (l *lookup) IsSet(field ref.Val) ref.Val { return l.Contains(field) } //nolint:ireturn // that of the interface

// Contains is that of traits.Container.
func (l *lookup) Contains(v ref.Val) ref.Val { //nolint:ireturn // that of the interface
	name, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	_, present := l.find(string(name))
	return types.Bool(present)
}

// AggregateSize is that of types.AggregateSizeVisitor: what a request has is there already.
func (l *lookup) AggregateSize(types.AggregateSizer) uint32 { return 1 }

// ConvertToNative is that of ref.Val: there is no other form.
func (l *lookup) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("weir: a lookup cannot be converted to %v", t)
}

// ConvertToType is that of ref.Val: there is no other type.
func (l *lookup) ConvertToType(ref.Type) ref.Val { //nolint:ireturn // that of the interface
	return types.NewErr("weir: a lookup cannot be converted")
}

// Equal is that of ref.Val: it is equal to nothing.
func (l *lookup) Equal(ref.Val) ref.Val { return types.False } //nolint:ireturn // that of the interface

// Type is that of ref.Val.
func (l *lookup) Type() ref.Type { return types.MapType } //nolint:ireturn // that of the interface

// Value is that of ref.Val.
func (l *lookup) Value() any { return l }
