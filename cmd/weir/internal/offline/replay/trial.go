package replay

import (
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// trial runs requests through one configuration. It belongs to one goroutine.
type trial struct {
	fields fields
	names  map[string]int // of the policies of all configurations: their numbers
	clock  *manualclock.Clock
	engine *policy.Engine

	numbers map[*policy.Policy]int
	total   counts
	counts  []counts // by number
	refused []tally  // by number
	history history  // 0: all requests; then by number, plus 1
	now     int64
	report  policy.Report // once all is done

	request policy.Request
	header  logged
	verdict policy.Verdict
	parts   []part // of the current request
	keys    []byte
}

// counts are those of a policy, or of all requests.
type counts struct{ requests, refused, denied, exempt int64 }

// newTrial returns a trial whose time begins with the first request.
func newTrial(c configuration, f fields, names map[string]int, first int64) (*trial, error) {
	t := &trial{
		fields: f, names: names, clock: c.clock, numbers: make(map[*policy.Policy]int),
		counts: make([]counts, len(names)), refused: make([]tally, len(names)), now: first,
	}
	for i := range t.refused {
		t.refused[i] = newTally(len(names))
	}
	t.clock.Set(clockTime(first))
	t.request.Protocol = "http"
	t.request.Header = &t.header
	if f.by != nil {
		t.request.Named = &policy.Named{Policy: []byte(limitName), Cost: 1}
	}
	engine, err := policy.NewEngine(c.set, policy.EngineOptions{Clock: t.clock, Alone: true})
	t.engine = engine
	return t, err
}

// keysOf is how many keys are counted for each of n policies.
func keysOf(n int) int { return max(1024, 1<<18/max(n, 1)) }

// each is called with every request: the verdict, and the policies that held for it.
type each func(i int, allowed bool, parts []part, keys []byte)

// run runs a batch through the configuration.
func (t *trial) run(b *batch, f each) {
	start := uint32(0)
	for i, e := range b.entries {
		t.fields.readRequest(b.text[start:e.end], &t.request, &t.header)
		start = e.end
		if e.at > t.now {
			t.now = e.at
			t.clock.Set(clockTime(e.at))
		}
		t.engine.Take(&t.request, &t.verdict)
		allowed := t.verdict.Allowed
		t.count(allowed)
		f(i, allowed, t.parts, t.keys)
		t.verdict.Release()
	}
}

// count counts the verdict, and makes parts of it: one for each policy, which has refused if one of its limits has.
func (t *trial) count(allowed bool) {
	v := &t.verdict
	at := t.history.at(t.now)
	t.total.requests++
	switch {
	case v.Exempt:
		t.total.exempt++
	case v.DeniedBy(0) != nil:
		t.total.denied++
	}
	if !allowed {
		t.total.refused++
	}
	t.history.count(0, at, !allowed)
	if t.fields.by != nil {
		return // the one policy did what became of all requests
	}

	t.parts, t.keys = t.parts[:0], t.keys[:0]
	for i := range v.Parts {
		p := &v.Parts[i]
		number := t.number(p.Policy)
		refused := !p.Decision.Allowed
		known := false
		for j := range t.parts {
			if t.parts[j].policy == number {
				known = true
				if refused && !t.parts[j].refused {
					t.parts[j].refused = true
					t.insertKey(j, p.Key)
				}
				break
			}
		}
		if known {
			continue
		}
		if refused {
			t.keys = append(t.keys, p.Key...)
		}
		t.parts = append(t.parts, part{number, refused, uint32(len(t.keys))})
	}
	start := uint32(0)
	for _, p := range t.parts {
		t.counts[p.policy].requests++
		if p.refused {
			t.counts[p.policy].refused++
			t.refused[p.policy].add(t.keys[start:p.key])
		}
		start = p.key
		t.history.count(p.policy+1, at, p.refused)
	}
}

// insertKey gives a key to the part j, which has none.
func (t *trial) insertKey(j int, key []byte) {
	end := int(t.parts[j].key)
	t.keys = append(t.keys, key...)
	copy(t.keys[end+len(key):], t.keys[end:])
	copy(t.keys[end:], key)
	for i := j; i < len(t.parts); i++ {
		t.parts[i].key += uint32(len(key))
	}
}

func (t *trial) number(p *policy.Policy) int {
	n, ok := t.numbers[p]
	if !ok {
		n = t.names[p.Name]
		t.numbers[p] = n
	}
	return n
}
