package ratelimitconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/config/yamlread"
)

// decoder reads files one after another, and goes on after a mistake.
type decoder struct {
	*yamlread.Reader // of the file that is read

	o       Options
	count   int // of descriptors
	domains map[string]*domain
	limits  []*Limit // in the order of the files
	// replacing are the names that limits replace.
	replacing []replacing
}

// mostAliased is how many nodes of a file may be looked at again, as aliases lead to them.
const mostAliased = 500_000

// get is the value of a key. One without a value is as if it were not there.
func get(o *yamlread.Object, key string) (yamlread.Value, bool) {
	v, ok := o.Get(key)
	return v, ok && !v.IsNull()
}

// missing adds a mistake about a key that must be there, unless it may be one of those that could not be read.
func (d *decoder) missing(o *yamlread.Object, message, fix string) {
	if !o.Failed {
		d.Wrong(o.Itself(), message, fix)
	}
}

// empty adds a mistake about a text that must not be empty. It stands at the key, where there is something to see.
func (d *decoder) empty(v yamlread.Value, fix string) {
	d.WrongAs(v.OfKey(), "", "must not be empty", fix)
}

// mostFields is how many keys a mapping may have: more than any has that are known.
const mostFields = 64

// read reads a mapping of a kind. envoyproxy/ratelimit accepts all keys everywhere, and takes no notice of those that stand in
// the
// wrong place.
func (d *decoder) read(v yamlread.Value, k *yamlread.Kind) (*yamlread.Object, bool) {
	o, ok := d.Mapping(v, k.What, k.Example)
	if !ok {
		return nil, false
	}
	if len(o.Keys) > mostFields {
		d.Wrong(v, fmt.Sprintf("has more than %d keys", mostFields), "remove those that are not known")
		return nil, false
	}
	for _, key := range o.Keys {
		if slices.Contains(k.Keys, key) {
			continue
		}
		at := slices.IndexFunc(kinds, func(other *yamlread.Kind) bool { return slices.Contains(other.Keys, key) })
		if at < 0 {
			d.Unknown(o, key, k)
			continue
		}
		message, fix := "has no effect in "+k.What+": it belongs in "+kinds[at].What, "move it there, or remove it"
		if slices.Contains(own, key) {
			d.Wrong(o.Fields[key].OfKey(), message, fix)
		} else {
			d.Warn(o.Fields[key].OfKey(), message, fix)
		}
	}
	return o, true
}

// items are those of a list.
func (d *decoder) items(v yamlread.Value, what, example string) []yamlread.Value {
	items, _ := d.List(v, "a list of "+what, "write a line with - for each: "+example)
	return items
}

// text is a text as it is written, whether it is a string for YAML or a number.
func (d *decoder) text(v yamlread.Value) (string, bool) {
	if !v.IsScalar() {
		d.Wrong(v, "must be text", "write "+v.Key.Value+": text")
		return "", false
	}
	return v.Node.Value, true
}

// flag is a key that is true or false, false if there is none. It reads the words of YAML 1.1.
func (d *decoder) flag(o *yamlread.Object, key string) (set bool, v yamlread.Value) {
	v, ok := get(o, key)
	if !ok {
		return false, v
	}
	if v.IsScalar() && !v.IsQuoted() {
		switch strings.ToLower(v.Node.Value) {
		case "true", "yes", "on", "y":
			return true, v
		case "false", "no", "off", "n":
			return false, v
		}
	}
	d.Wrong(v, "must be true or false", "write true or false, without quotes")
	return false, v
}

// number is a whole number.
func (d *decoder) number(v yamlread.Value, lo, hi int64) (int64, bool) {
	must := fmt.Sprintf("must be a whole number from %d to %d", lo, hi)
	if !v.IsScalar() {
		d.Wrong(v, must, "write "+v.Key.Value+": 100")
		return 0, false
	}
	text := strings.TrimPrefix(v.Node.Value, "+")
	digits := strings.ReplaceAll(text, "_", "")
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case v.IsQuoted():
		d.Wrong(v, "is text: "+must, "write it without quotes")
	case err != nil || digits != strconv.FormatInt(n, 10) || strings.HasPrefix(text, "_"):
		d.Wrong(v, "is not written as a decimal number in range: "+must,
			fmt.Sprintf("write %d, for instance", max(lo, min(hi, 100))))
	case n < lo || n > hi:
		d.Wrong(v, must, fmt.Sprintf("write %d, for instance", min(max(n, lo), hi)))
	default:
		return n, true
	}
	return 0, false
}

// deepestMetadata is how deep its mappings and lists may be nested.
const deepestMetadata = 32

// metadata reads what a limit tells its clients: a mapping with anything in it.
func (d *decoder) metadata(v yamlread.Value) map[string]any {
	if !v.IsMapping() {
		d.Wrong(v, "must be a mapping", "write metadata: and key: value below it")
		return nil
	}
	all, _ := d.anything(v, 0).(map[string]any)
	return all
}

// anything reads what a google.protobuf.Struct can hold.
func (d *decoder) anything(v yamlread.Value, depth int) any {
	switch {
	case depth > deepestMetadata:
		d.Wrong(v, "is nested more than "+strconv.Itoa(deepestMetadata)+" levels deep", "remove some")
	case v.IsMapping():
		o, _ := d.Mapping(v, "", "")
		all := make(map[string]any, len(o.Keys))
		for _, key := range o.Keys {
			all[key] = d.anything(o.Fields[key], depth+1)
		}
		return all
	case v.IsList():
		items, _ := d.List(v, "", "")
		all := make([]any, 0, len(items))
		for _, item := range items {
			all = append(all, d.anything(item, depth+1))
		}
		return all
	default:
		return scalar(v.Node)
	}
	return nil
}

// scalar is a value as YAML understands it: text, a number, true or false, or nothing.
func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var x float64
		if n.Decode(&x) == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return n.Value
}
