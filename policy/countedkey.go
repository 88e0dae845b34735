package policy

import (
	"maps"
	"slices"

	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/store"
)

// CountedKey is what requests are counted under whose key is given as this text: the text itself, or what stands for it if it is
// long. All methods of an engine that take a key accept the text, and what stands for it. Without such a policy it is the text.
func (e *Engine) CountedKey(policy, key string) string {
	if p := e.live.Load().policy(policy); p != nil {
		return p.counted(key)
	}
	return key
}

// counted is what a key is counted under that an operator gives.
func (p *livePolicy) counted(key string) string {
	if len(key) <= keytext.MaxPart || keytext.StandsForLong(key) {
		return key
	}
	return string(appendNamed(nil, key, p.composed))
}

// appendNamed appends what a key is counted under that a caller names. It is what a rule would make of it: where keys are
// composed of several parts they may be long, and all others are bounded.
func appendNamed[S string | []byte](b []byte, key S, composed bool) []byte {
	if composed && len(key) <= store.MostKeyBytes && !keytext.StandsForLong(key) {
		return append(b, key...)
	}
	return keytext.AppendPart(b, key)
}

// countedKeys are the limits of keys by what these are counted under.
func (p *livePolicy) countedKeys() map[string][]Limit {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(p.Keys)), func(key string) bool { return p.counted(key) != key }) {
		return p.Keys
	}
	all := maps.Clone(p.Keys)
	for key, limits := range p.Keys {
		if counted := p.counted(key); p.Keys[counted] == nil { // one that is named as it is counted comes first
			all[counted] = limits
		}
	}
	return all
}

// composedKeys notes of which policies a key has several parts.
func (s *snapshot) composedKeys() {
	for i := range s.live {
		s.live[i].composed = composed(s.live[i].Key)
	}
	for _, uses := range s.uses {
		for i := range uses {
			p := &s.live[uses[i].policy]
			p.composed = p.composed || composed(uses[i].Key)
		}
	}
}

// composed reports whether a text has several parts, each of which is bounded alone.
func composed(t Text) bool {
	var parts []Text
	switch t := t.(type) {
	case *joined:
		parts = t.parts
	case *concatenated:
		parts = t.parts
	}
	return len(parts) > 1 || len(parts) == 1 && composed(parts[0])
}
