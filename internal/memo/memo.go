// Package memo keeps what was made of a value, such as a limit, so that it is made once.
package memo

import "sync"

// Max is how many values a [Table] remembers. When there are more, all are forgotten: they can come from clients.
const Max = 4096

// Table has what was made of values. The zero value is empty. It is safe for concurrent use.
type Table[K comparable, V any] struct {
	lock  sync.RWMutex
	known map[K]V
}

// Of returns what f makes of k, or has made of it before. Nothing is remembered of an error. Two calls at a time may both call f.
func (t *Table[K, V]) Of(k K, f func(K) (V, error)) (V, error) {
	t.lock.RLock()
	v, ok := t.known[k]
	t.lock.RUnlock()
	if ok {
		return v, nil
	}
	v, err := f(k)
	if err == nil {
		t.put(k, v)
	}
	return v, err
}

func (t *Table[K, V]) put(k K, v V) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.known == nil || len(t.known) >= Max {
		t.known = make(map[K]V)
	}
	t.known[k] = v
}
