package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/durable"
)

// TestSealWhileWritten looks at databases that are written meanwhile, and grow: they are never damaged, and what is read of one
// that rests is read again.
func TestSealWhileWritten(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := filepath.Join(t.TempDir(), "db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true})
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- writeAll(db) }()
		for ended := false; !ended; {
			if _, _, wrong := sealOf(path); wrong != nil {
				t.Error(wrong)
			}
			select {
			case failed := <-written:
				if ended = true; failed != nil {
					t.Error(failed)
				}
			default:
			}
		}
		one, _, err := sealOf(path)
		again, _, wrong := sealOf(path)
		if err != nil || wrong != nil || one == nil || again == nil || *one != *again || one.Index != 200 {
			t.Errorf("%+v and %+v: %v, %v", one, again, err, wrong)
		}
		if err = db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func writeAll(db *bbolt.DB) error {
	for i := range 200 {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("meta"))
			if err != nil {
				return fmt.Errorf("a bucket: %w", err)
			}
			for j := range 5 {
				if err := b.Put(fmt.Appendf(nil, "%d", i*7919%300+j), make([]byte, 2000)); err != nil {
					return fmt.Errorf("a value: %w", err)
				}
			}
			return b.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, uint64(i+1)))
		})
		if err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
	}
	return nil
}

// TestSmallerFileIsNotOlder: a server whose database was made smaller, which begins to count its transactions anew, may die
// before that is sealed. It starts again, and one whose database is older does not.
func TestSmallerFileIsNotOlder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Start(t.Context(), EmbeddedOptions{Directory: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	backend := s.etcd.Server.Backend()
	put := func(key string) {
		t.Helper()
		if _, failed := s.client.Put(t.Context(), key, "value"); failed != nil {
			t.Fatal(failed)
		}
		backend.ForceCommit()
	}
	for i := range 50 {
		put(fmt.Sprint(i))
	}
	died := func() string { // what is left on the disk, with what was sealed
		left := t.TempDir()
		if failed := os.CopyFS(left, os.DirFS(dir)); failed != nil {
			t.Fatal(failed)
		}
		return left
	}
	sealed, _, err := sealOf(databaseOf(dir))
	if err != nil || sealed == nil {
		t.Fatal(sealed, err)
	}
	older := died()
	if err = backend.Defrag(); err != nil {
		t.Fatal(err)
	}
	smaller := died()
	if err = sealed.write(smaller); err != nil {
		t.Fatal(err)
	}
	if now, _, wrong := sealOf(databaseOf(smaller)); wrong != nil || now.Tx >= sealed.Tx {
		t.Fatalf("%+v, %v: it was not made anew", now, wrong)
	}
	if err = verify(smaller, true); err != nil {
		t.Error(err)
	}
	put("one more")
	newer, _, err := sealOf(databaseOf(dir))
	if err != nil || newer == nil {
		t.Fatal(newer, err)
	}
	if err = newer.write(older); err != nil {
		t.Fatal(err)
	}
	if err = verify(older, true); err == nil {
		t.Error("an older database than what was sealed is used")
	}
}

// TestRevisionsAreChecked: etcd ends the process when it reads a revision below 0, also that of what was deleted.
func TestRevisionsAreChecked(t *testing.T) {
	t.Parallel()
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("key"), ModRevision: 17})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "t"} {
		key := append([]byte("\x00\x00\x00\x00\x00\x00\x00\x11_\x00\x00\x00\x00\x00\x00\x00\x01"), end...)
		if _, err = checkEntry(key, value, false); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		for _, at := range []int{0, 9} {
			flipped := bytes.Clone(key)
			flipped[at] ^= 0x80
			if _, err = checkEntry(flipped, value, false); err == nil {
				t.Errorf("%q is used", flipped)
			}
		}
	}
}

// TestLeasesAreChecked: whichever bit of the number of a lease changes, where it stands or at the key that lives as long, a node does
// not start with it: it would keep the key of an owner that has gone, and the nodes would wait for each other for ever.
func TestLeasesAreChecked(t *testing.T) {
	t.Parallel()
	dir, id := leased(t)
	db, err := bbolt.Open(databaseOf(dir), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	number := binary.AppendUvarint(nil, uint64(id))
	// without changes the entry of a bucket that has the number of the lease, and a node must not start with that.
	without := func(what, bucket string, change func(key, value []byte) (newKey, newValue []byte)) {
		t.Helper()
		var key, value, changed, to []byte
		failed := db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			c := b.Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if bytes.Contains(v, number) {
					key, value = bytes.Clone(k), bytes.Clone(v)
				}
			}
			changed, to = change(bytes.Clone(key), bytes.Clone(value))
			return errors.Join(b.Delete(key), b.Put(changed, to))
		})
		if verify(dir, false) == nil {
			t.Errorf("%s: it is used", what)
		}
		failed = errors.Join(failed, db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			return errors.Join(b.Delete(changed), b.Put(key, value))
		}))
		if failed != nil {
			t.Fatal(failed)
		}
	}
	for bit := range 8 * 8 {
		without(fmt.Sprintf("bit %d of the key of the lease", bit), "lease", func(key, value []byte) (k, v []byte) {
			key[bit/8] ^= 1 << (bit % 8)
			return key, value
		})
	}
	for bit := range 8 * len(number) {
		for _, bucket := range []string{"lease", "key"} {
			without(fmt.Sprintf("bit %d of the lease in %s", bit, bucket), bucket, func(key, value []byte) (k, v []byte) {
				value[bytes.Index(value, number)+bit/8] ^= 1 << (bit % 8)
				return key, value
			})
		}
	}
	for _, ttl := range []int64{0, -1, lease.MaxLeaseTTL + 1} {
		without(fmt.Sprintf("a lease of %d s", ttl), "lease", func(key, _ []byte) (k, v []byte) {
			v, failed := proto.Marshal(&leasepb.Lease{ID: id, TTL: ttl})
			if failed != nil {
				t.Fatal(failed)
			}
			return key, v
		})
	}
	if err = verify(dir, false); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

// leased is the directory of a server that was killed, with a key that lives as long as a lease, one that did, and one whose lease
// is gone.
func leased(t *testing.T) (dir string, id int64) {
	t.Helper()
	dir = t.TempDir()
	s, err := Start(t.Context(), EmbeddedOptions{Directory: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	c := s.Client()
	lives, err := c.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	goes, err := c.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	for key, of := range map[string]clientv3.LeaseID{"lives": lives.ID, "again": goes.ID, "goes": goes.ID} {
		if _, err = c.Put(t.Context(), key, "", clientv3.WithLease(of)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = c.Put(t.Context(), "again", ""); err != nil { // without one
		t.Fatal(err)
	}
	if _, err = c.Revoke(t.Context(), goes.ID); err != nil {
		t.Fatal(err)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if err = os.Remove(filepath.Join(dir, sealFile)); err != nil {
		t.Fatal(err)
	}
	if err = verify(dir, false); err != nil {
		t.Fatal(err)
	}
	return dir, int64(lives.ID)
}

// TestOwnersHaveLeases: a candidate that finds the key of an owner without a lease, which would never go, tells so.
func TestOwnersHaveLeases(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), EmbeddedOptions{Directory: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := New(s.Client(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err = s.Client().Put(t.Context(), e.elections()+"1", "an owner that has gone"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told error
	e.damaged = func(err error) {
		told = err
		cancel()
	}
	if _, err = e.Campaign(ctx, "this one"); !errors.Is(err, context.Canceled) || !errors.Is(told, durable.ErrDamaged) {
		t.Errorf("%v, and it was told %v", err, told)
	}
}
