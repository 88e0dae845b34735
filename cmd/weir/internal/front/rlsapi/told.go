package rlsapi

import (
	"encoding/binary"
	"math"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

// fieldNames are the header fields that limits are told in, and how the proxy is told of them.
var fieldNames = [...][2]string{
	{"Ratelimit-Policy", "ratelimit-policy"},
	{"Ratelimit", "ratelimit"},
	{"Retry-After", "retry-after"},
	{"X-Ratelimit-Limit", "x-ratelimit-limit"},
	{"X-Ratelimit-Remaining", "x-ratelimit-remaining"},
	{"X-Ratelimit-Reset", "x-ratelimit-reset"},
	{answer.RefusalField, "weir-refusal"},
}

// binding is the group that the answer is told of: the one that refuses, or else the one that was charged.
func (c *call) binding() *group {
	for _, g := range [...]*group{&c.charged, &c.probed, &c.apart} {
		if len(g.requests) > 0 && g.verdict.Allowed != c.over && len(g.verdict.Parts) > 0 {
			return g
		}
	}
	return nil
}

// encodeHeaders appends the header fields.
func (c *call) encodeHeaders(e *encoder) {
	if c.service.o.Fields == httplimit.NoFields {
		return
	}
	g := c.binding()
	if g == nil {
		return
	}
	if c.header == nil {
		c.header = make(http.Header, len(fieldNames))
	}
	c.service.fields.TellAll(c.header, g.requests, &g.verdict)
	for _, name := range fieldNames {
		for _, value := range c.header[name[0]] {
			at := e.begin(responseHeaders)
			e.text(headerKey, name[1])
			e.text(headerValue, value)
			e.end(at)
		}
	}
}

// encodeMetadata appends the dynamic metadata: those of the limits of a configuration of envoyproxy/ratelimit, and under
// "weir" what has decided.
func (c *call) encodeMetadata(e *encoder) {
	if c.service.o.NoMetadata {
		return
	}
	at := e.begin(responseMetadata)
	from := len(*e)
	if !c.over {
		for i := range c.matched {
			if l := c.matched[i].Limit; l != nil && l.Metadata != nil {
				e.structure(l.Metadata)
			}
		}
	}
	if g := c.binding(); g != nil {
		if v := &g.verdict; v.Binding >= 0 && v.Binding < len(v.Parts) {
			e.decided(&v.Parts[v.Binding], v.RefusalID, len(c.matched) > 0)
		}
	}
	if len(*e) == from {
		*e = (*e)[:from-2] // nothing is told
		return
	}
	e.end(at)
}

// decided appends what has decided. Rules that were not asked have no name.
func (e *encoder) decided(p *policy.Part, refusal uint64, named bool) {
	entry := e.begin(structFields)
	e.text(mapKey, "weir")
	value := e.begin(mapValue)
	at := e.begin(valueStruct)
	d := &p.Decision
	e.pair("policy", d.Policy)
	if p.Rule != nil && !named {
		e.pair("rule", p.Rule.Name)
	}
	if !d.Allowed {
		e.pair("reason", d.Reason.String())
		if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
			e.count("retry_after", d.RetryAfter.Seconds())
		}
	}
	if refusal != 0 {
		e.pair("refusal", answer.FormatRefusal(refusal))
	}
	e.count("limit", float64(d.Limit))
	e.count("remaining", float64(d.Remaining))
	e.end(at)
	e.end(value)
	e.end(entry)
}

func (e *encoder) pair(key, text string) {
	entry := e.begin(structFields)
	e.text(mapKey, key)
	value := e.begin(mapValue)
	e.text(valueString, text)
	e.end(value)
	e.end(entry)
}

func (e *encoder) count(key string, n float64) {
	entry := e.begin(structFields)
	e.text(mapKey, key)
	value := e.begin(mapValue)
	e.double(n)
	e.end(value)
	e.end(entry)
}

// double appends the number of a Value, also if it is 0: it is one of several.
func (e *encoder) double(n float64) {
	*e = protowire.AppendTag(*e, valueNumber, protowire.Fixed64Type)
	*e = binary.LittleEndian.AppendUint64(*e, math.Float64bits(n))
}

// structure appends the fields of a Struct, in order.
func (e *encoder) structure(fields map[string]any) {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		entry := e.begin(structFields)
		e.text(mapKey, strings.ToValidUTF8(key, "\uFFFD"))
		value := e.begin(mapValue)
		e.value(fields[key])
		e.end(value)
		e.end(entry)
	}
}

// value appends what a Value is.
func (e *encoder) value(v any) {
	switch v := v.(type) {
	case string:
		e.text(valueString, strings.ToValidUTF8(v, "\uFFFD"))
	case bool:
		n := uint64(0)
		if v {
			n = 1
		}
		*e = protowire.AppendVarint(protowire.AppendTag(*e, valueBool, protowire.VarintType), n)
	case int:
		e.double(float64(v))
	case int64:
		e.double(float64(v))
	case uint64:
		e.double(float64(v))
	case float64:
		e.double(v)
	case map[string]any:
		at := e.begin(valueStruct)
		e.structure(v)
		e.end(at)
	case []any:
		at := e.begin(valueList)
		for _, item := range v {
			one := e.begin(listValues)
			e.value(item)
			e.end(one)
		}
		e.end(at)
	default:
		*e = protowire.AppendVarint(protowire.AppendTag(*e, valueNull, protowire.VarintType), 0)
	}
}
