package yamlread_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/config/yamlread"
)

// plainly is what a value is for a reader that knows nothing of it. It returns false after a mistake, for a number with a fraction,
// which no format has, and for a key that is no text for YAML, which a Reader takes as it is written.
func plainly(r *yamlread.Reader, v yamlread.Value) (any, bool) {
	switch {
	case v.IsNull():
		return nil, true
	case v.IsMapping():
		o, ok := r.Mapping(v, "anything", "")
		if !ok || o.Failed {
			return nil, false
		}
		all := make(map[string]any, len(o.Keys))
		for _, key := range o.Keys {
			name := o.Fields[key].Key
			if name.Kind == yaml.AliasNode {
				name = name.Alias
			}
			if name.ShortTag() != "!!str" {
				return nil, false
			}
			if all[key], ok = plainly(r, o.Fields[key]); !ok {
				return nil, false
			}
		}
		return all, true
	case v.IsList():
		items, ok := r.List(v, "a list", "")
		all := make([]any, len(items))
		for i := 0; ok && i < len(items); i++ {
			all[i], ok = plainly(r, items[i])
		}
		return all, ok
	case v.IsBool():
		b := r.Boolean(v)
		return b, len(r.Mistakes.All) == 0
	}
	s, ok := r.Scalar(v, "anything", "")
	switch {
	case !ok:
		return nil, false
	case s.IsInt():
		n, ok := r.Number(v, math.MinInt64, math.MaxInt64, "a number")
		return n, ok
	default:
		return s.Text, s.IsText()
	}
}

// decoded is a value of the decoder with the types of plainly. It returns false for others, such as times.
func decoded(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, value := range v {
			var ok bool
			if all[key], ok = decoded(value); !ok {
				return nil, false
			}
		}
		return all, true
	case []any:
		all := make([]any, len(v))
		for i := range v {
			var ok bool
			if all[i], ok = decoded(v[i]); !ok {
				return nil, false
			}
		}
		return all, true
	case int:
		return int64(v), true
	case nil, bool, string:
		return v, true
	}
	return nil, false
}

// FuzzDecoded compares what a Reader accepts with what the decoder of the parser makes of it, which has its own way of aliases,
// merges, and types.
func FuzzDecoded(f *testing.F) {
	names, err := filepath.Glob("../testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {x: 4, <<: [*a, {z: 5}]}\n",
		"a: &a {<<: &b {x: 1}, x: 2}\nc: {<<: [*b, *a]}\n", "a: &a {<<: &b {~: 1}, x: 2}",
		"- ~\n- null\n- 'null'\n- 1_000\n- -0\n- yes\n- true\n", "- 0x1F\n- 0o17\n- 010\n", "- True\n- .inf\n- 2001-01-01\n",
		"a: !!str 1\nb: !!int '1'\nc: !x d\ne: !!bool 'true'\nf: !!null x\n", "<<: {a: 1}\n",
		"a: |\n  x\n\n  y\nb: >-\n  x\n  y\n",
		"? a\n: b\n", "'<<': {a: 1}\n", "a: &x 1\n*x : 2\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := yamlread.New("f.yaml", data, yamlread.Options{Aliased: 1000})
		root, ok := r.Root()
		if !ok {
			return
		}
		got, ok := plainly(r, root)
		if !ok || r.Errors() != nil {
			return
		}
		var v any
		if err := yaml.Unmarshal(data, &v); err != nil {
			// A value that does not have its tag, such as !!null x, and a second << in a mapping, which is merged as well.
			if bytes.ContainsRune(data, '!') || bytes.Count(data, []byte("<<")) > 1 {
				return
			}
			t.Fatalf("%q is read as %v, but not decoded: %v", data, got, err)
		}
		if want, ok := decoded(v); ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is read as\n%#v, and decoded as\n%#v", data, got, want)
		}
	})
}
