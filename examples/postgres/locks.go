// Package postgres keeps the states of weir's limits in PostgreSQL. It is an example of how a database becomes a
// [store.Home]: three methods, each of which is one statement, are what [store.NewLocked] needs.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/weirhq/weir/store"
)

// Schema makes the table, if it does not exist. Any number of processes may run it at the same time.
const Schema = `
SELECT pg_advisory_xact_lock(hashtext('weir_states'));
CREATE TABLE IF NOT EXISTS weir_states (
	key bytea PRIMARY KEY,
	value bytea,
	dropped timestamptz NOT NULL DEFAULT '-infinity', -- when the value is dropped
	owner bytea NOT NULL,
	until timestamptz NOT NULL -- when the lock ends
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS weir_states_dropped ON weir_states (dropped);`

// Locks are [store.Locks] in the table of [Schema], which the search path finds. Leases and times to live pass by the clock of
// the database. Bytes are kept for up to a minute longer than they have to be, so that dropped, which has an index, seldom
// changes: PostgreSQL updates a row in place then.
type Locks struct{ DB *sql.DB }

// Whether a key is locked need not be on disk. If a crash of the database forgets it, the key is free, or its lease ends, and
// the one that had the lock cannot write any more. So only a write of the value waits for the disk.
const lockAndGet = `
INSERT INTO weir_states AS kept (key, owner, until)
SELECT $1, $2, clock_timestamp() + make_interval(secs => $3) FROM set_config('synchronous_commit', 'off', true)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE kept.owner = excluded.owner OR kept.until <= clock_timestamp()
RETURNING CASE WHEN dropped > clock_timestamp() THEN value END`

// LockAndGet implements [store.Locks].
func (l Locks) LockAndGet(ctx context.Context, key, owner string, lease time.Duration) (value []byte, err error) {
	err = l.DB.QueryRowContext(ctx, lockAndGet, []byte(key), []byte(owner), lease.Seconds()).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrLocked
	}
	return value, err
}

// SetAndUnlock implements [store.Locks].
func (l Locks) SetAndUnlock(ctx context.Context, key, owner string, value []byte, ttl time.Duration) error {
	if ttl == 0 {
		return l.change(ctx, `DELETE FROM weir_states WHERE key = $1 AND owner = $2 AND until > clock_timestamp()`, key, owner)
	}
	return l.change(ctx, `
UPDATE weir_states SET until = '-infinity', value = $3,
	dropped = date_trunc('minute', clock_timestamp() + make_interval(secs => $4)) + interval '1 minute'
WHERE key = $1 AND owner = $2 AND until > clock_timestamp()`, key, owner, value, ttl.Seconds())
}

// Unlock implements [store.Locks].
func (l Locks) Unlock(ctx context.Context, key, owner string) error {
	return l.change(ctx, `
UPDATE weir_states SET until = '-infinity' FROM set_config('synchronous_commit', 'off', true)
WHERE key = $1 AND owner = $2 AND until > clock_timestamp()`, key, owner)
}

// change is store.ErrNotOwner if there is no row to be changed.
func (l Locks) change(ctx context.Context, query, key, owner string, args ...any) error {
	result, err := l.DB.ExecContext(ctx, query, append([]any{[]byte(key), []byte(owner)}, args...)...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return store.ErrNotOwner
}

// Sweep deletes at most so many rows that are not needed any more, and returns how many it deleted. One process should call it
// now and then, so that the table does not grow by keys that do not come back.
func (l Locks) Sweep(ctx context.Context, most int) (int64, error) {
	result, err := l.DB.ExecContext(ctx, `
DELETE FROM weir_states WHERE key = ANY (ARRAY(
	SELECT key FROM weir_states WHERE dropped <= now() AND until <= now()
	ORDER BY dropped LIMIT $1 FOR UPDATE SKIP LOCKED))`, most)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
