package durable

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Engine is how a cluster agrees. It elects the one process that owns the limits, and keeps their records so that only the owner
// can change them. Package enginetest is the suite that every engine must pass.
type Engine interface {
	// Campaign waits until this process is the owner, or ctx ends. The address is what others find it by.
	Campaign(ctx context.Context, address string) (Term, error)
	// Watch returns a channel of the nodes that own the limits: at once what is known, and then each change, until ctx ends,
	// when the channel is closed. A slow reader may miss a change that another one has followed, never the last.
	Watch(ctx context.Context) (<-chan Ownership, error)
	// Close ends what the engine has begun. Terms that were not resigned end as if the process had died.
	Close() error
}

// Ownership is which process owns the limits.
type Ownership struct {
	// Address is that of the owner, "" if there is none.
	Address string
	// Epoch is that of its term.
	Epoch int64
}

// Term is the time for which a process owns the limits. All methods are safe for concurrent use.
type Term interface {
	// Epoch is greater than that of every term before.
	Epoch() int64
	// Expires is until when no other process can become the owner, unless the term is resigned, by this process's monotonic
	// clock. It becomes later each time that the engine has been heard of.
	Expires() time.Time
	// Done is closed when the term has ended, or may have.
	Done() <-chan struct{}
	// Load reads a record. A record that does not exist has revision 0.
	Load(ctx context.Context, name string) (value []byte, revision int64, err error)
	// List reads the records whose names begin with prefix, by name, the last ones first. It returns at most so many of them,
	// none if that is not positive.
	List(ctx context.Context, prefix string, most int) ([]Named, error)
	// Page reads the records whose names begin with prefix and are greater than after, by name, the first ones first, at most so
	// many of them. Use it to go through more records than fit into memory.
	Page(ctx context.Context, prefix, after string, most int) ([]Named, error)
	// Store writes or deletes records of different names, all or none: at most MostWrites of them and MostBytes. It writes only
	// if this is still the term, and each of them still has the revision that is expected. It returns their new revision. When it
	// returns nil the records will survive what the engine promises to survive.
	//
	// ErrDeposed, if it is not the term any more, and ErrConflict, if a record has another revision, mean that nothing was
	// written. After any other error it is not known whether they were, or will be.
	Store(ctx context.Context, writes []Write) (revision int64, err error)
	// Resign ends the term, so that another process need not wait until it expires.
	Resign(ctx context.Context) error
}

// Write is a record to be written, or to be deleted if its value is nil.
type Write struct {
	Name     string
	Value    []byte
	Revision int64 // that it is expected to have, 0 if it does not exist
}

// Named is a record with its name.
type Named struct {
	Name     string
	Value    []byte
	Revision int64
}

const (
	// MostWrites is how many records one call of Store may write.
	MostWrites = 100
	// MostBytes is how many bytes their names and values may have together: less than what etcd takes in one request, which is
	// 1.5 MiB.
	MostBytes = 1 << 20
)

// CheckWrites returns an error for writes that no engine has to store; it is ErrTooLarge if they are too many bytes. It is for
// implementations of Term.
func CheckWrites(writes []Write) error {
	if len(writes) > MostWrites {
		return fmt.Errorf("weir: %d records at a time: must be at most %d", len(writes), MostWrites)
	}
	size := 0
	for i := range writes {
		size += len(writes[i].Name) + len(writes[i].Value)
	}
	if size > MostBytes {
		return fmt.Errorf("%w: %d bytes of %d records, must be at most %d", ErrTooLarge, size, len(writes), MostBytes)
	}
	return nil
}

var (
	// ErrDeposed is returned if a process is not the owner any more.
	ErrDeposed = errors.New("weir: this process does not own the limits any more")
	// ErrConflict is returned if a record does not have the revision that is expected.
	ErrConflict = errors.New("weir: a record was written by another process")
	// ErrTooLarge is returned if records are too many bytes for one call of Store. Nothing was written.
	ErrTooLarge = errors.New("weir: the records are too large")
	// ErrEngineClosed is returned if this process has closed the engine.
	ErrEngineClosed = errors.New("weir: the engine is closed")
)
