package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// Locks is the smallest contract for a place that keeps states: it locks a key, and keeps some bytes for it. [NewLocked] makes it
// a [Home].
//
// LockAndGet has four outcomes; do not mix them up: absent (nil, nil), present (the bytes, nil), locked by another ([ErrLocked]),
// and failed (any other error).
//
// The context of a call ends with that of the request, or when [LockedOptions.Wait] is over. Let connections be made outside it,
// by a pool: otherwise requests that give up leave connections half made, and a place that was out does not come back while
// requests begin others.
type Locks interface {
	// LockAndGet locks the key for owner, until lease has passed or it is unlocked, and returns its bytes. A lock whose lease has
	// passed belongs to the next owner that locks it.
	LockAndGet(ctx context.Context, key, owner string, lease time.Duration) (value []byte, err error)
	// SetAndUnlock replaces the bytes, and unlocks the key. The bytes may be dropped once ttl has passed, which is whole seconds;
	// 0 drops them at once. It returns ErrNotOwner if owner does not have the lock any more: then nothing was written.
	SetAndUnlock(ctx context.Context, key, owner string, value []byte, ttl time.Duration) error
	// Unlock unlocks the key and leaves the bytes as they are. It returns ErrNotOwner if owner does not have the lock any more.
	Unlock(ctx context.Context, key, owner string) error
}

var (
	// ErrLocked is returned if another owner has the lock of a key.
	ErrLocked = errors.New("weir: the key is locked by another owner")
	// ErrNotOwner is returned if a lock has passed to another owner, or to none.
	ErrNotOwner = errors.New("weir: the lock is not held by this owner")
)

// MemoryLocks is a [Locks] in the memory of this process, for tests, and the example of how to write one: three methods, each of
// which is one step. In a database each of them is one transaction.
//
// Each lock also drops up to two other keys whose time has passed, so memory is used only for what is in use. The zero
// MemoryLocks is not usable: call [NewMemoryLocks].
type MemoryLocks struct {
	clock weir.Clock
	mu    sync.Mutex
	rows  map[string]memoryRow
}

// memoryRow is what is kept for a key.
type memoryRow struct {
	value   []byte
	dropped int64  // when the value is dropped
	owner   string // "" if it is not locked
	until   int64  // when the lock ends
}

var _ Locks = (*MemoryLocks)(nil)

// NewMemoryLocks returns empty locks. Their leases and times to live pass by the clock, or by the wall clock if it is nil.
func NewMemoryLocks(clock weir.Clock) *MemoryLocks {
	return &MemoryLocks{clock: clock, rows: make(map[string]memoryRow)}
}

// LockAndGet implements [Locks].
func (m *MemoryLocks) LockAndGet(ctx context.Context, key, owner string, lease time.Duration) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := clockNow(m.clock)
	m.sweep(now)
	row := m.rows[key] // absent is the zero row
	if row.owner != "" && row.owner != owner && row.until > now {
		return nil, ErrLocked
	}
	if row.dropped <= now {
		row.value = nil
	}
	row.owner, row.until = owner, now+int64(lease)
	m.rows[key] = row
	return row.value, nil
}

// SetAndUnlock implements [Locks].
func (m *MemoryLocks) SetAndUnlock(ctx context.Context, key, owner string, value []byte, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := clockNow(m.clock)
	if row := m.rows[key]; row.owner != owner || row.until <= now { // the next owner may have read the old value
		return ErrNotOwner
	}
	if ttl == 0 {
		delete(m.rows, key)
		return nil
	}
	m.rows[key] = memoryRow{value: value, dropped: now + int64(ttl)}
	return nil
}

// Unlock implements [Locks].
func (m *MemoryLocks) Unlock(ctx context.Context, key, owner string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.rows[key]
	if row.owner != owner || row.until <= clockNow(m.clock) {
		return ErrNotOwner
	}
	if row.owner, row.until = "", 0; row.value == nil {
		delete(m.rows, key)
		return nil
	}
	m.rows[key] = row
	return nil
}

// sweep drops what has been kept for long enough. Maps begin anywhere when they are ranged over.
func (m *MemoryLocks) sweep(now int64) {
	looks := 2
	for key, row := range m.rows {
		if row.dropped <= now && row.until <= now {
			delete(m.rows, key)
		}
		if looks--; looks == 0 {
			return
		}
	}
}
