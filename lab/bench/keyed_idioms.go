package bench

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The names of what programs do that use no library of keyed limiters.
const (
	byMutexMap   = "mutex+map"
	byRWMutexMap = "rwmutex+map"
	bySyncMap    = "sync.Map"
)

const idiomCall = "rate.Limiter.Allow() of the key"

// full reports whether a limiter may be deleted without a loss.
func full(l *rate.Limiter, now time.Time) bool { return l.TokensAt(now) >= float64(l.Burst()) }

// mutexMap is a map of limiters under a lock.
type mutexMap struct {
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
	budget   budget
}

func (m *mutexMap) allow(key string) bool {
	m.mu.Lock()
	l, ok := m.limiters[key]
	if !ok {
		l = m.budget.xtime()
		m.limiters[key] = l
	}
	m.mu.Unlock()
	return l.Allow()
}

func (m *mutexMap) clean() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for key, l := range m.limiters {
		if full(l, now) {
			delete(m.limiters, key)
		}
	}
}

func keyedMutexMap() keyedSubject {
	return keyedSubject{
		By: byMutexMap, Call: idiomCall, Cleaning: "a sweep under the lock of all keys",
		New: func(o keyedOptions) keyedLimiter {
			m := &mutexMap{limiters: map[string]*rate.Limiter{}, budget: o.budget}
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if m.allow(key) {
							granted++
						}
					}
					return granted
				},
				allow: m.allow, clean: m.clean,
			}
		},
	}
}

// rwMutexMap is a map of limiters under a lock, which lookups of keys share.
type rwMutexMap struct {
	mu       sync.RWMutex
	limiters map[string]*rate.Limiter
	budget   budget
}

func (m *rwMutexMap) allow(key string) bool {
	m.mu.RLock()
	l, ok := m.limiters[key]
	m.mu.RUnlock()
	if !ok {
		l = m.add(key)
	}
	return l.Allow()
}

func (m *rwMutexMap) add(key string) *rate.Limiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.limiters[key]
	if !ok {
		l = m.budget.xtime()
		m.limiters[key] = l
	}
	return l
}

func (m *rwMutexMap) clean() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for key, l := range m.limiters {
		if full(l, now) {
			delete(m.limiters, key)
		}
	}
}

func keyedRWMutexMap() keyedSubject {
	return keyedSubject{
		By: byRWMutexMap, Call: idiomCall, Cleaning: "a sweep under the lock of all keys",
		New: func(o keyedOptions) keyedLimiter {
			m := &rwMutexMap{limiters: map[string]*rate.Limiter{}, budget: o.budget}
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if m.allow(key) {
							granted++
						}
					}
					return granted
				},
				allow: m.allow, clean: m.clean,
			}
		},
	}
}

// syncMap is a sync.Map of limiters.
type syncMap struct {
	limiters sync.Map
	budget   budget
}

func (m *syncMap) allow(key string) bool {
	l, ok := m.limiters.Load(key)
	if !ok {
		l, _ = m.limiters.LoadOrStore(key, m.budget.xtime())
	}
	return l.(*rate.Limiter).Allow() //nolint:errcheck,forcetypeassert // there is nothing else in it
}

func (m *syncMap) clean() {
	now := time.Now()
	m.limiters.Range(func(key, l any) bool {
		if full(l.(*rate.Limiter), now) { //nolint:errcheck,forcetypeassert // there is nothing else in it
			m.limiters.Delete(key)
		}
		return true
	})
}

func keyedSyncMap() keyedSubject {
	return keyedSubject{
		By: bySyncMap, Call: idiomCall, Cleaning: "a sweep beside the callers",
		New: func(o keyedOptions) keyedLimiter {
			m := &syncMap{budget: o.budget}
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if m.allow(key) {
							granted++
						}
					}
					return granted
				},
				allow: m.allow, clean: m.clean,
			}
		},
	}
}
