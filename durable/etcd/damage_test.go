package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// image is what the files of a directory have, by their names in it. The zeros at their ends, of which etcd writes many megabytes
// in advance, are not kept.
type image map[string]imageFile

type imageFile struct {
	content []byte
	size    int64
}

// used is a directory in which a node has granted 900 of 1000 permits.
func used(t *testing.T) image {
	t.Helper()
	dir := t.TempDir()
	c, err := etcd.Join(t.Context(), lasting(etcd.ClusterOptions{Directory: dir}))
	if err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if got := take(t, c, 100); got != weir.ReasonNone {
			t.Fatal(got)
		}
	}
	if err = c.Close(); err != nil {
		t.Fatal(err)
	}
	m := image{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		m[strings.TrimPrefix(path, dir)] = imageFile{bytes.TrimRight(b, "\x00"), int64(len(b))}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// killed is such a directory as a node that was killed leaves it, without a seal of the last state.
func killed(t *testing.T) image {
	t.Helper()
	m := used(t)
	delete(m, "/weir.seal")
	return m
}

func databaseIn(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// database is what the database has.
func (m image) database() []byte { return m[databaseIn("/")].content }

// copied is a directory with the files.
func (m image) copied(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, f := range m {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, f.size); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// change writes some bytes into a file.
func change(t *testing.T, path string, at int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// startDamaged starts a node on a directory that was damaged. It is refused with what to do, or nothing was lost.
func startDamaged(t *testing.T, what, dir string) (refused bool) {
	t.Helper()
	var log logged
	o := lasting(etcd.ClusterOptions{Directory: dir, UnsafeNoFsync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c, err := etcd.Join(t.Context(), o)
	if err != nil {
		if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%s: %v", what, err)
		}
		return true
	}
	defer c.Close()
	ready(t, c.Node())
	a := spectest.Acquire(t.Context(), c.Node(), quota(101))
	if a.Reason == weir.ReasonNone {
		t.Errorf("%s: 1001 of 1000 were granted", what)
	}
	if a.Reason == weir.ReasonUnavailable && !errors.Is(a.Err, durable.ErrDamaged) && c.Server().Err() == nil {
		t.Errorf("%s: %v", what, a.Err)
	}
	return false
}

// TestFlippedBitsGrantNothing: whichever bit of the database changes while a node is down, nothing is granted twice, and the node says
// what happened, or it was one that nothing depends on.
func TestFlippedBitsGrantNothing(t *testing.T) {
	t.Parallel()
	whole := used(t)
	b := whole.database()
	var inUse []int // bytes that are not zero
	for i, x := range b {
		if x != 0 {
			inUse = append(inUse, i)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	const positions = 200
	var refused atomic.Int64
	t.Cleanup(func() {
		if n := refused.Load(); n == 0 {
			t.Error("no damage was found")
		} else {
			t.Logf("%d of %d were refused", n, positions)
		}
	})
	for part := range 4 {
		var flips [][2]int
		for range positions / 4 {
			flips = append(flips, [2]int{inUse[r.IntN(len(inUse))], r.IntN(8)})
		}
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for _, flip := range flips {
				at, bit := flip[0], flip[1]
				next := whole.copied(t)
				change(t, databaseIn(next), int64(at), b[at]^1<<bit)
				if startDamaged(t, fmt.Sprintf("bit %d of byte %d", bit, at), next) {
					refused.Add(1)
				}
				if t.Failed() {
					return
				}
				_ = os.RemoveAll(next)
			}
		})
	}
}

// TestFlippedBitAfterKill: without a seal of the last state, as a node that was killed leaves it, a record that has changed is found by
// its own checksum, in its value, its name and its revision.
func TestFlippedBitAfterKill(t *testing.T) {
	t.Parallel()
	whole := killed(t)
	b := whole.database()
	name := strings.LastIndex(string(b), "/weir/state/")
	if name < 0 {
		t.Fatal("there is no record")
	}
	for _, from := range []int{-24, 14, 52} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			t.Parallel()
			for at := name + from; at < name+from+38; at++ {
				next := whole.copied(t)
				change(t, databaseIn(next), int64(at), b[at]^1<<(at%8))
				startDamaged(t, fmt.Sprintf("byte %d, %d from the name", at, at-name), next)
				_ = os.RemoveAll(next)
			}
		})
	}
}

// TestFlippedMember: without a seal, a member whose name or number has changed is found, as is one that votes and is none: a node that
// took part with them would be refused by etcd at its next start. So is a version of the cluster that is none.
func TestFlippedMember(t *testing.T) {
	t.Parallel()
	whole := killed(t)
	b := whole.database()
	for what, place := range map[string]struct {
		near   string
		offset int
	}{
		"name":   {`{"id":`, -1},
		"number": {`{"id":`, len(`{"id":1234`)},
		"vote":   {`"voters":[`, len(`"voters":[1234`)},
		// etcd panics of such a version.
		"version": {"clusterVersion3", len("clusterVersion3")},
	} {
		next, found := whole.copied(t), false
		for from := 0; ; found = true { // in pages that are not in use, too
			n := bytes.Index(b[from:], []byte(place.near))
			if n < 0 {
				break
			}
			at := from + n + place.offset
			change(t, databaseIn(next), int64(at), b[at]^1)
			from += n + len(place.near)
		}
		if !found {
			t.Errorf("%s: there is none", what)
		}
		if !startDamaged(t, what, next) {
			t.Errorf("%s: it was not found", what)
		}
	}
}

// TestDamagedFiles: pages of zeros, files that are cut off or older, and garbage do not end the process, and grant nothing twice.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	whole := used(t)
	b, size := whole.database(), whole[databaseIn("/")].size
	const page = 4096
	for at := 0; at < len(b); at += page {
		if len(bytes.TrimRight(b[at:min(at+page, len(b))], "\x00")) == 0 {
			continue // nothing was ever written there
		}
		for what, pattern := range map[string]string{"zeros": "\x00", "garbage": "\xa5\x5a"} {
			next := whole.copied(t)
			change(t, databaseIn(next), int64(at), bytes.Repeat([]byte(pattern), page/len(pattern))...)
			startDamaged(t, fmt.Sprintf("%s at %d", what, at), next)
			_ = os.RemoveAll(next)
		}
	}
	for _, size := range []int64{0, 100, page, 3 * page, size / 2, size - 1} {
		next := whole.copied(t)
		if err := os.Truncate(databaseIn(next), size); err != nil {
			t.Fatal(err)
		}
		startDamaged(t, fmt.Sprintf("cut off at %d", size), next)
		_ = os.RemoveAll(next)
	}
	next := whole.copied(t)
	segments, err := filepath.Glob(filepath.Join(next, "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	const lost = 1500
	change(t, segments[len(segments)-1], end1(t, next)-lost, make([]byte, lost)...)
	if !startDamaged(t, "the end of the log is gone", next) {
		t.Error("a log whose end is gone was taken for whole")
	}
}

func end1(t *testing.T, dir string) int64 {
	_, at := end(t, dir)
	return at
}

// TestDamageWhileRunning: a database that changes below a node that runs is found, and the node leaves.
func TestDamageWhileRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log logged
	c, err := etcd.Join(t.Context(), lasting(etcd.ClusterOptions{
		Directory: dir, UnsafeNoFsync: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := take(t, c, 900); got != weir.ReasonNone {
		t.Fatal(got)
	}
	eventually(t, "the database is sealed", func() bool { // which it is when it has rested
		_, missing := os.Stat(filepath.Join(dir, "weir.seal"))
		return missing == nil
	})
	f, err := os.OpenFile(databaseIn(dir), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for at := range b {
		if strings.HasPrefix(string(b[at:min(at+12, len(b))]), "/weir/state/") {
			if _, err := f.WriteAt([]byte{b[at+12] ^ 1}, int64(at+12)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-c.Failed():
	case <-time.After(inTheEnd):
		t.Fatal("the damage is not found")
	}
	if err := c.Server().Err(); !strings.Contains(err.Error(), "checksum") {
		t.Error(err)
	}
	eventually(t, "it decides on nothing any more", func() bool { // until it hears of it, it may grant what a record was ahead by
		a := spectest.Acquire(t.Context(), c.Node(), quota(1))
		return a.Reason != weir.ReasonNone && a.Reason != weir.ReasonLimited
	})
	eventually(t, "it is logged what happens now", func() bool {
		return strings.Contains(log.String(), "this node takes no part until it has joined again")
	})
}
