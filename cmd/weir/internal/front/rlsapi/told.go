package rlsapi

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// fieldNames are the header fields that limits are told in, and how the proxy is told of them, in this order.
var fieldNames = [...][2]string{
	{"Ratelimit-Policy", "ratelimit-policy"},
	{"Ratelimit", "ratelimit"},
	{"Retry-After", "retry-after"},
	{"X-Ratelimit-Limit", "x-ratelimit-limit"},
	{"X-Ratelimit-Remaining", "x-ratelimit-remaining"},
	{"X-Ratelimit-Reset", "x-ratelimit-reset"},
}

// binding is the group that the answer is told of: the one that refuses, or else the one that was charged.
func (c *call) binding() *group {
	for _, g := range [...]*group{&c.charged, &c.probed} {
		if g.binds(c.over) {
			return g
		}
	}
	for _, g := range c.quotas {
		if g.binds(c.over) {
			return g
		}
	}
	if g := &c.refunded; g.denial() != nil {
		return g
	}
	return nil
}

// binds reports whether a group was answered as the request was.
func (g *group) binds(over bool) bool {
	return len(g.requests) > 0 && g.verdict.Allowed != over && (len(g.verdict.Parts) > 0 || g.denial() != nil)
}

// denial is the rule that denies a request of a group, nil if none does.
func (g *group) denial() *policy.Rule {
	for i := range g.requests {
		if rule := g.verdict.DeniedBy(i); rule != nil {
			return rule
		}
	}
	return nil
}

// limitFields is how many Options.LimitFields there are.
const limitFields = 3

// encodeLimit appends Options.LimitFields: of the last limit that the request is over and no quota, or else of the one of which
// the least is left.
func (c *call) encodeLimit(e *encoder) {
	var tightest *told
	least := int64(math.MaxUint32)
	for i := range c.statuses {
		t := &c.statuses[i]
		if !t.limited {
			continue
		}
		if t.over && (len(c.matched) == 0 || !c.matched[i].Limit.Quota) {
			tightest, least = t, 0
		} else if t.remaining < least {
			tightest, least = t, t.remaining
		}
	}
	if tightest == nil {
		return
	}
	for i, n := range [limitFields]uint64{
		clamped(tightest.limit.requests), clamped(tightest.remaining), uint64((tightest.reset + time.Second - 1) / time.Second),
	} {
		at := e.begin(responseHeaders)
		e.text(headerKey, c.service.o.LimitFields[i])
		e.text(headerValue, strconv.FormatUint(n, 10))
		e.end(at)
	}
}

// encodeHeaders appends the header fields.
func (c *call) encodeHeaders(e *encoder) {
	if len(c.service.o.LimitFields) > 0 {
		c.encodeLimit(e)
	}
	if c.service.o.Fields == ratelimitfields.NoFields {
		return
	}
	g := c.binding()
	if g == nil {
		return
	}
	c.service.fields.Write(&c.fields, &g.verdict, &c.last)
	for _, name := range fieldNames {
		for i := range c.fields.Len() {
			if c.fields.Name(i) != name[0] {
				continue
			}
			at := e.begin(responseHeaders)
			e.text(headerKey, name[1])
			value := e.begin(headerValue)
			*e = c.fields.AppendValue(*e, i)
			e.end(value)
			e.end(at)
		}
	}
	if id := g.verdict.RefusalID; id != 0 {
		at := e.begin(responseHeaders)
		e.text(headerKey, refusalField)
		e.text(headerValue, answer.FormatRefusal(id))
		e.end(at)
	}
}

// encodeOver appends the header field by which the service behind the proxy is told which policies with mode: tag the request is
// over.
func (c *call) encodeOver(e *encoder) {
	if c.over {
		return
	}
	var all []string
	for _, a := range c.asked {
		if a.group == nil || a.group == &c.refunded { // which gives back
			continue
		}
		for _, name := range a.group.verdict.Over(a.place) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if len(all) > 0 {
		at := e.begin(requestHeaders)
		e.text(headerKey, overField)
		e.text(headerValue, answer.FormatOver(all))
		e.end(at)
	}
}

// overField is answer.OverField, as the proxy is told of it.
var overField = strings.ToLower(answer.OverField)

// refusalField is answer.RefusalField, as the proxy is told of it.
var refusalField = strings.ToLower(answer.RefusalField)

// encodeUser appends the metadata of the limits of a configuration of envoyproxy/ratelimit that have passed: the first wins.
func (c *call) encodeUser(e *encoder) {
	var passed map[string]any
	for i := range c.matched {
		m := &c.matched[i]
		if m.Outcome != ratelimitconfig.Limited || len(m.Limit.Metadata) == 0 || i >= len(c.statuses) || c.statuses[i].over {
			continue
		}
		if passed == nil {
			passed = m.Limit.Metadata
		} else {
			passed = merged(passed, m.Limit.Metadata)
		}
	}
	if passed == nil {
		return
	}
	entry, value, at := e.beginStruct("metadata")
	e.structure(passed)
	e.endStruct(entry, value, at)
}

// merged is first with what second has beside it. Neither is changed.
func merged(first, second map[string]any) map[string]any {
	all := maps.Clone(first)
	for key, v := range second {
		there, known := all[key]
		inner, ok := there.(map[string]any)
		more, both := v.(map[string]any)
		switch {
		case !known:
			all[key] = v
		case ok && both:
			all[key] = merged(inner, more)
		}
	}
	return all
}

// encodeMetadata appends the dynamic metadata: under "metadata" those of the limits of a configuration of envoyproxy/ratelimit,
// and under "weir" what has decided.
func (c *call) encodeMetadata(e *encoder) {
	if c.service.o.NoMetadata {
		return
	}
	at := e.begin(responseMetadata)
	from := len(*e)
	c.encodeUser(e)
	if c.unfit {
		e.undecided()
	} else if g := c.binding(); g != nil {
		if rule := g.denial(); rule != nil {
			e.denied(rule, g.verdict.RefusalID)
		} else if p, ok := g.verdict.BindingPart(); ok {
			c.decided(e, g, p)
		}
	}
	if len(*e) == from {
		*e = (*e)[:from-2] // nothing is told
		return
	}
	e.end(at)
}

// undecided appends that nothing could be decided.
func (e *encoder) undecided() {
	entry, value, at := e.beginStruct("weir")
	e.pair("reason", weir.ReasonInvalid.String())
	e.endStruct(entry, value, at)
}

// denied appends which rule denies a request.
func (e *encoder) denied(rule *policy.Rule, refusal uint64) {
	entry, value, at := e.beginStruct("weir")
	e.pair("rule", rule.Name)
	e.pair("reason", weir.ReasonDenied.String())
	if refusal != 0 {
		e.pair("refusal", answer.FormatRefusal(refusal))
	}
	e.endStruct(entry, value, at)
}

// numbersOf are a limit and what remains of it, as the metadata have them. A limit of 0 and a quota are counted as one more.
func (c *call) numbersOf(g *group, p *policy.Part) (limit, remaining int64) {
	if len(c.matched) > 0 {
		i := slices.Index(c.asked, asked{g, p.Request})
		if l := c.matched[i].Limit; l.RequestsPerUnit == 0 || l.Quota {
			return int64(l.RequestsPerUnit), c.statuses[i].remaining
		}
	}
	return p.Decision.Limit, p.Decision.Remaining
}

// decided appends what has decided. Rules that were not asked have no name.
func (c *call) decided(e *encoder, g *group, p *policy.Part) {
	entry, value, at := e.beginStruct("weir")
	d := &p.Decision
	e.pair("policy", d.Policy)
	if p.Rule != nil && len(c.matched) == 0 {
		e.pair("rule", p.Rule.Name)
	}
	if !d.Allowed {
		e.pair("reason", d.Reason.String())
		if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
			e.count("retry_after", d.RetryAfter.Seconds())
		}
	}
	if refusal := g.verdict.RefusalID; refusal != 0 {
		e.pair("refusal", answer.FormatRefusal(refusal))
	}
	limit, remaining := c.numbersOf(g, p)
	e.count("limit", float64(limit))
	e.count("remaining", float64(remaining))
	e.endStruct(entry, value, at)
}

// beginStruct begins a field of a Struct that is a Struct itself, and returns what endStruct needs.
func (e *encoder) beginStruct(key string) (entry, value, at int) {
	entry = e.begin(structFields)
	e.text(mapKey, key)
	value = e.begin(mapValue)
	return entry, value, e.begin(valueStruct)
}

func (e *encoder) endStruct(entry, value, at int) {
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
