package etcd

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/durable"
)

// What bbolt keeps has no checksum, so that one bit that changes on a disk can make a record an older one, or none. This is
// found before etcd reads it: the pages must fit together, each record has a checksum of its own, the log must reach as far as
// the database says, and the members and leases must be the same wherever they stand (TestFlippedMember, TestLeasesAreChecked).
// What was written last must be as it was then: a seal beside the database says so. It is renewed whenever the database has
// rested for a moment, and when the server ends. A server that is killed while it writes has an older seal, and only the other
// checks.

const (
	sealFile  = "weir.seal"
	sealBytes = 4096
	sealEvery = time.Second
	// sealShare is for how many times as long as it took to go through the database nothing is done about it.
	sealShare = 100
)

// seal says what a database was when it had rested.
type seal struct {
	Tx  uint64 `json:"tx"`
	Sum uint32 `json:"sum"`
	// Index is the last entry of the log that is in it. A file that was made smaller, or came from the leader, has other numbers
	// of transactions, and is no older for that.
	Index uint64 `json:"index"`
	// Own is the checksum of the seal.
	Own uint32 `json:"own"`
}

func (s *seal) own() uint32 {
	var b [20]byte
	binary.BigEndian.PutUint64(b[:], s.Tx)
	binary.BigEndian.PutUint32(b[8:], s.Sum)
	binary.BigEndian.PutUint64(b[12:], s.Index)
	return crc32.Checksum(b[:], castagnoli)
}

// check returns an error if a database is not what it was when the same transaction was its last one.
func (s *seal) check(now *seal) error {
	if s.Tx == now.Tx && s.Sum != now.Sum {
		return fmt.Errorf("%w: it has the checksum %08x, and had %08x when it was written", errPages, now.Sum, s.Sum)
	}
	return nil
}

func databaseOf(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// readSeal returns nil if there is none that can be read.
func readSeal(dir string) *seal {
	text, err := os.ReadFile(filepath.Join(dir, sealFile)) //nolint:gosec // the directory is the choice of the operator
	s := new(seal)
	if err != nil || len(text) > sealBytes || json.Unmarshal(text, s) != nil || s.Own != s.own() {
		return nil
	}
	return s
}

func (s *seal) write(dir string) error {
	text, _ := json.Marshal(s) //nolint:errchkjson // they are numbers
	path := filepath.Join(dir, sealFile)
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	return os.Rename(path+".tmp", path) //nolint:wrapcheck // it names the file
}

// scan goes through a database that may be written meanwhile: then changed is true and the rest means nothing.
func scan(path string, entry func(bucket, key, value []byte) error) (p *pages, changed bool, err error) {
	f, err := os.Open(path) //nolint:gosec // the directory is the choice of the operator
	if err != nil {
		return nil, false, err //nolint:wrapcheck // it names the file
	}
	defer f.Close() //nolint:errcheck // it was only read
	p = &pages{file: f, entry: entry}
	err = p.walk()
	after := &pages{file: f}
	if failed := after.readMeta(); failed == nil && after.meta != p.meta {
		return p, true, nil
	}
	return p, false, err
}

// verify finds damage of what a server keeps, before it is started. The error says where it is. The records of a node that is
// alone are checked as well; those of a cluster are compared with what the others have, when etcd starts and when they are read.
func verify(dir string, alone bool) error {
	path := databaseOf(dir)
	var (
		index uint64
		of    voters
		live  leases
	)
	p, _, err := scan(path, func(bucket, key, value []byte) error {
		switch string(bucket) {
		case "key":
			kv, wrong := checkEntry(key, value, alone)
			live.key(kv)
			return wrong
		case "lease":
			return live.lease(key, value)
		case "meta":
			indexIn(&index, key, value)
		}
		return of.entry(string(bucket), string(key), value)
	})
	if err == nil {
		err = cmp.Or(of.check(), live.check())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // it is made of the log, or etcd refuses
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	if sealed := readSeal(dir); sealed != nil {
		if err := sealed.check(&seal{Tx: p.meta.tx, Sum: p.sum}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if sealed.Index > index {
			return fmt.Errorf("%s: %w: it is older than what this node has written; after a backup was restored, which gives "+
				"back what was allowed since, remove %s", path, errPages, filepath.Join(dir, sealFile))
		}
	}
	if last, ok := lastIndex(dir); ok && !wasUnwritten(dir, last) && last < index {
		return fmt.Errorf("%s: the log ends at %d, and the database has %d: the end of the log is lost or damaged",
			filepath.Join(dir, "member", "wal"), last, index)
	}
	return nil
}

// indexIn reads the last entry of the log that is in a database, if an entry of its bucket "meta" is that.
func indexIn(index *uint64, key, value []byte) {
	if string(key) == "consistent_index" && len(value) == 8 {
		*index = binary.BigEndian.Uint64(value)
	}
}

// voters is what a database says of the members of its cluster: in the bucket of members, in that of members that were removed,
// and once more as the voters that raft starts with. Where one of them has another member, etcd asks it for votes, or ends the
// server at its next start.
type voters struct {
	known map[uint64]bool // members, and those that were removed
	raft  raftpb.ConfState
}

// entry reads an entry of a bucket, if it is about members.
func (m *voters) entry(bucket, key string, value []byte) error {
	switch {
	case bucket == "meta" && key == "confState":
		if err := json.Unmarshal(value, &m.raft); err != nil {
			return fmt.Errorf("the members that vote: %w", err)
		}
		return nil
	case bucket != "members" && bucket != "members_removed":
		return nil
	}
	id, err := strconv.ParseUint(key, 16, 64)
	if err != nil {
		return fmt.Errorf("a member: %w", err)
	}
	if bucket == "members" {
		var says struct {
			ID uint64 `json:"id"`
		}
		if err := json.Unmarshal(value, &says); err != nil {
			return fmt.Errorf("member %x: %w", id, err)
		}
		if says.ID != id {
			return fmt.Errorf("member %x has the number %x", id, says.ID)
		}
	}
	if m.known == nil {
		m.known = make(map[uint64]bool)
	}
	m.known[id] = true
	return nil
}

// check returns an error if one that votes neither is a member nor was one. A removal is written to the buckets first.
func (m *voters) check() error {
	r := &m.raft
	for _, ids := range [][]uint64{r.GetVoters(), r.GetLearners(), r.GetVotersOutgoing(), r.GetLearnersNext()} {
		for i, id := range ids {
			if !m.known[id] || slices.Contains(ids[:i], id) {
				return fmt.Errorf("%w: %x votes, and is not a member, or votes twice", errPages, id)
			}
		}
	}
	return nil
}

const (
	revisionSize = 17 // and one for what was deleted
	statePart    = "/state/"
)

// leases is what a database says of leases, and of the keys that live as long as one. A node on which a lease is another one, or
// none, keeps the key of an owner that has gone: it waits for it for ever, and the others for its own.
type leases struct {
	of    map[string]int64 // the lease of each key that has one
	known map[int64]bool
}

// key reads a revision of a key. They come in their order.
func (l *leases) key(kv *mvccpb.KeyValue) {
	if kv.GetLease() == 0 {
		delete(l.of, string(kv.GetKey()))
		return
	}
	if l.of == nil {
		l.of = make(map[string]int64)
	}
	l.of[string(kv.GetKey())] = kv.GetLease()
}

// lease reads a lease.
func (l *leases) lease(key, value []byte) error {
	says := new(leasepb.Lease)
	wrong := len(key) != 8 || proto.Unmarshal(value, says) != nil || says.GetID() != int64(binary.BigEndian.Uint64(key))
	ttl, left := says.GetTTL(), says.GetRemainingTTL()
	if wrong || ttl < 1 || ttl > lease.MaxLeaseTTL || left < 0 || left > ttl {
		return fmt.Errorf("the lease %x is %v", key, says)
	}
	if l.known == nil {
		l.known = make(map[int64]bool)
	}
	l.known[says.GetID()] = true
	return nil
}

// check returns an error if a key has a lease that is not there. etcd removes both at once.
func (l *leases) check() error {
	for name, id := range l.of {
		if !l.known[id] {
			return fmt.Errorf("%w: the key %.80q has the lease %x, which is not there", errPages, name, id)
		}
	}
	return nil
}

// checkEntry checks a revision of a key, and whether its value is what an owner wrote.
func checkEntry(key, value []byte, record bool) (*mvccpb.KeyValue, error) {
	deleted := len(key) == revisionSize+1 && key[revisionSize] == 't'
	if len(key) != revisionSize && !deleted || key[8] != '_' {
		return nil, errors.New("it is not a revision")
	}
	main, sub := int64(binary.BigEndian.Uint64(key)), int64(binary.BigEndian.Uint64(key[9:]))
	if main < 0 || sub < 0 { // etcd ends the process
		return nil, fmt.Errorf("it is of revision %d, %d", main, sub)
	}
	kv := new(mvccpb.KeyValue)
	if err := proto.Unmarshal(value, kv); err != nil || len(kv.GetKey()) == 0 {
		return nil, errors.New("it is not a key and a value")
	}
	if deleted {
		return kv, nil
	}
	if kv.GetModRevision() != main {
		return nil, fmt.Errorf("it is of revision %d, and says %d", main, kv.GetModRevision())
	}
	if !record {
		return kv, nil
	}
	var wrong error
	name := string(kv.GetKey())
	for from := 0; ; {
		at := strings.Index(name[from:], statePart)
		if at < 0 {
			return kv, wrong
		}
		from += at + len(statePart)
		if wrong = durable.CheckValue(name[from:], kv.GetValue()); wrong == nil {
			return kv, nil
		}
	}
}

// lastIndex is the number of the last entry of the log, if it can be read: otherwise etcd says why not.
func lastIndex(dir string) (last uint64, ok bool) {
	path := filepath.Join(dir, "member", "wal")
	snaps, err := wal.ValidSnapshotEntries(zap.NewNop(), path)
	if err != nil {
		return 0, false
	}
	from := &walpb.Snapshot{}
	if len(snaps) > 0 {
		from = snaps[len(snaps)-1]
	}
	w, err := wal.OpenForRead(zap.NewNop(), path, from)
	if err != nil {
		return 0, false
	}
	defer w.Close() //nolint:errcheck // it was only read
	_, _, entries, err := w.ReadAll()
	if err != nil {
		return 0, false
	}
	if len(entries) == 0 {
		return from.GetIndex(), true
	}
	return entries[len(entries)-1].GetIndex(), true
}

// unwritten is how a file is called which says that etcd could not write its log beyond an entry, as on a disk that was full. It
// applies entries while it writes them to the log, so the database may have some that the log has not. No other node was told
// that this one has them, and it gets them again.
const unwritten = "weir.unwritten-"

// noteUnwritten notes how far the log reaches that could not be written. The file is empty, as a full disk has room for no more.
// Without it the node is refused if its database is ahead.
func noteUnwritten(dir string) {
	if last, ok := lastIndex(dir); ok {
		_ = os.WriteFile(filepath.Join(dir, unwritten+strconv.FormatUint(last, 10)), nil, 0o600)
	}
}

// wasUnwritten reports whether it was noted that the log could not be written beyond this entry. Notes of others are removed.
func wasUnwritten(dir string, last uint64) (noted bool) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		switch at, note := strings.CutPrefix(f.Name(), unwritten); {
		case !note:
		case at == strconv.FormatUint(last, 10):
			noted = true
		default:
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	return noted
}

// sealing renews the seal of the database, and finds what is damaged while the server runs.
func (s *Server) sealing() {
	timer := time.NewTimer(sealEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.failure.done:
			return
		case <-s.ctx.Done():
			return
		}
		begin := time.Now()
		if err := s.sealOnce(); err != nil {
			s.failure.fail(s.damaged(err))
			return
		}
		timer.Reset(max(sealEvery, sealShare*time.Since(begin)))
	}
}

// damaged is an error that says what to do about damage.
func (s *Server) damaged(err error) error {
	return fmt.Errorf("%w: %w; to repair it: %s", ErrRepair, err, s.repair)
}

// sealOnce goes through the database, unless it is being written. The error is that it is damaged. What is damaged stays so, and
// what has rested is found the same again: only what was read twice leads to a seal, or to a node that leaves.
func (s *Server) sealOnce() error {
	path := databaseOf(s.directory)
	now, file, err := sealOf(path)
	if now == nil {
		return nil
	}
	if s.sealed != nil && !os.SameFile(file, s.sealedIn) {
		s.sealed = nil // another file has replaced that one
	}
	if err == nil && s.sealed != nil && *now == *s.sealed {
		return nil
	}
	again, _, wrong := sealOf(path)
	if again == nil || *again != *now || (err == nil) != (wrong == nil) {
		return nil
	}
	if err == nil && s.sealed != nil {
		err = s.sealed.check(now)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if now.write(s.directory) == nil { // without one there is one check less
		s.sealed, s.sealedIn = now, file
	}
	return nil
}

// sealOf goes through a database, and says in which file that is. It returns nil if it cannot be read, or is being written, and
// an error if it is damaged.
func sealOf(path string) (now *seal, file os.FileInfo, err error) {
	now = new(seal)
	p, changed, err := scan(path, func(bucket, key, value []byte) error {
		if string(bucket) == "meta" {
			indexIn(&now.Index, key, value)
		}
		return nil
	})
	if changed || err != nil && !errors.Is(err, errPages) {
		return nil, nil, nil
	}
	now.Tx, now.Sum = p.meta.tx, p.sum
	now.Own = now.own()
	return now, p.info, err
}
