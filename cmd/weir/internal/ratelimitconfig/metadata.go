package ratelimitconfig

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// metadata reads what a limit tells its clients: a mapping with anything in it.
func (d *decoder) metadata(f field) map[string]any {
	if f.value.Kind != yaml.MappingNode {
		d.wrongField(f, "must be a mapping", "write metadata: and key: value below it")
		return nil
	}
	var v map[string]any
	d.within("."+f.name, func() { v, _ = d.anything(f.value, 0).(map[string]any) })
	return v
}

// deepestMetadata is how deep its mappings and lists may be nested.
const deepestMetadata = 32

// anything reads what a google.protobuf.Struct can hold.
func (d *decoder) anything(n *yaml.Node, depth int) any {
	n = resolve(n)
	if depth > deepestMetadata {
		d.wrong(n, "is nested more than "+strconv.Itoa(deepestMetadata)+" levels deep", "remove some")
		return nil
	}
	if !d.spend(1 + len(n.Content)) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		all := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := resolve(n.Content[i])
			if key.Kind != yaml.ScalarNode {
				d.wrong(n.Content[i], "a key must be text", "write key: value")
				continue
			}
			all[key.Value] = d.anything(n.Content[i+1], depth+1)
		}
		return all
	case yaml.SequenceNode:
		all := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			all = append(all, d.anything(item, depth+1))
		}
		return all
	default:
		return scalar(n)
	}
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
