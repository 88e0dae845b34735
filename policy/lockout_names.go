package policy

import (
	"sync"
)

// lockedNames are the names of the last keys that were locked out. Noting one allocates nothing once there are as many as may be.
type lockedNames struct {
	mu   sync.Mutex
	keys [][]byte
	next int // the one that is the oldest, when there are mostLockedNames
}

const (
	mostLockedNames   = 4096
	longestLockedName = 256
)

func (l *lockedNames) note(key []byte) {
	if len(key) > longestLockedName {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) < mostLockedNames {
		l.keys = append(l.keys, append([]byte(nil), key...))
		return
	}
	l.keys[l.next] = append(l.keys[l.next][:0], key...)
	l.next = (l.next + 1) % mostLockedNames
}

// last are the names, each once, in no order.
func (l *lockedNames) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[string]bool, len(l.keys))
	all := make([]string, 0, len(l.keys))
	for _, key := range l.keys {
		if !seen[string(key)] {
			name := string(key)
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}
