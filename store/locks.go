package store

import (
	"context"
	"errors"
	"time"
)

// Locks is the smallest contract for a place that keeps states: it locks a key, and keeps some bytes for it. [NewLocked] makes it
// a [Home].
//
// LockAndGet has four outcomes; do not mix them up: absent (nil, nil), present (the bytes, nil), locked by another ([ErrLocked]),
// and failed (any other error).
type Locks interface {
	// LockAndGet locks the key for owner, until lease has passed or it is unlocked, and returns its bytes. A lock whose lease has
	// passed belongs to the next owner that locks it.
	LockAndGet(ctx context.Context, key, owner string, lease time.Duration) (value []byte, err error)
	// SetAndUnlock replaces the bytes, which may be dropped once ttl has passed, and unlocks the key. A ttl of 0 drops them at
	// once. It returns ErrNotOwner if owner does not have the lock any more: then nothing was written.
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
