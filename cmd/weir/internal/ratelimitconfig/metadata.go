package ratelimitconfig

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/config/yamlread"
)

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
