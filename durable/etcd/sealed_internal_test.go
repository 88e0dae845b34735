package etcd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
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
		if err = checkEntry(key, value, false); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		for _, at := range []int{0, 9} {
			flipped := bytes.Clone(key)
			flipped[at] ^= 0x80
			if err = checkEntry(flipped, value, false); err == nil {
				t.Errorf("%q is used", flipped)
			}
		}
	}
}
