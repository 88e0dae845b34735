package store

import "strings"

// The entries of a Memory are queued by when they may be fresh. An entry is moved only when it leads the queue, so that a
// charge costs nothing here: what it is queued by is a time before which it is not fresh.

// add makes an entry for a charge that has none.
func (m *Memory) add(c *Charge, t *terms, now int64) *memoryEntry {
	e := &memoryEntry{record: *newRecord(t, now), key: memoryKey{strings.Clone(c.Policy), strings.Clone(c.Key)}, due: now}
	m.keys[e.key] = e
	e.slot = len(m.queue)
	m.queue = append(m.queue, e)
	m.up(e.slot)
	return e
}

// due moves an entry that was changed to where it may be fresh earlier than it is queued for. One that is fresh is not dropped
// at once, as it is often asked for again.
func (m *Memory) due(e *memoryEntry) {
	if at := e.freshAt(); e.due <= e.at || at < e.due {
		e.due = at
		m.down(e.slot)
		m.up(e.slot)
	}
}

// forget drops an entry.
func (m *Memory) forget(e *memoryEntry) {
	delete(m.keys, e.key)
	last := len(m.queue) - 1
	at := e.slot
	m.queue[at] = m.queue[last]
	m.queue[at].slot = at
	m.queue[last] = nil
	if m.queue = m.queue[:last]; at < last {
		m.down(at)
		m.up(at)
	}
}

// reclaim forgets fresh entries: two, or as many as are needed to keep no more than most.
func (m *Memory) reclaim(now int64, most int) {
	for few := 2; len(m.queue) > 0 && m.queue[0].due <= now && (few > 0 || len(m.keys) > most); few-- {
		e := m.queue[0]
		e.ready(now, nil)
		if e.fresh() {
			m.forget(e)
			continue
		}
		e.due = max(e.freshAt(), now+1)
		m.down(0)
	}
}

func (m *Memory) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if m.queue[parent].due <= m.queue[i].due {
			return
		}
		m.swap(i, parent)
		i = parent
	}
}

func (m *Memory) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.queue); child++ {
			if m.queue[child].due < m.queue[least].due {
				least = child
			}
		}
		if least == i {
			return
		}
		m.swap(i, least)
		i = least
	}
}

func (m *Memory) swap(i, j int) {
	m.queue[i], m.queue[j] = m.queue[j], m.queue[i]
	m.queue[i].slot, m.queue[j].slot = i, j
}
