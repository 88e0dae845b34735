package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// used is a directory in which a node has granted 900 of 1000 permits, and how long its database is.
func used(t *testing.T) (dir, db string) {
	t.Helper()
	dir = t.TempDir()
	c, err := etcd.Join(t.Context(), lasting(etcd.ClusterOptions{Directory: dir}))
	if err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if got := take(t, c, 100); got != weir.ReasonNone {
			t.Fatal(got)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, databaseIn(dir)
}

// killed is such a directory as a node that was killed leaves it, without a seal of the last state, and its database.
func killed(t *testing.T) (dir string, content []byte) {
	t.Helper()
	dir, db := used(t)
	content, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "weir.seal")); err != nil {
		t.Fatal(err)
	}
	return dir, content
}

func databaseIn(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// copied copies a directory.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// change changes a file by f.
func change(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o600); err != nil {
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
	dir, db := used(t)
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
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
				next := copied(t, dir)
				change(t, databaseIn(next), func(b []byte) []byte {
					b[at] ^= 1 << bit
					return b
				})
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
	dir, b := killed(t)
	name := strings.LastIndex(string(b), "/weir/state/")
	if name < 0 {
		t.Fatal("there is no record")
	}
	for _, from := range []int{-24, 14, 52} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			t.Parallel()
			for at := name + from; at < name+from+38; at++ {
				next := copied(t, dir)
				change(t, databaseIn(next), func(b []byte) []byte {
					b[at] ^= 1 << (at % 8)
					return b
				})
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
	dir, b := killed(t)
	for what, pattern := range map[string]string{
		"name":   `([0-9a-f])\{"id":`,
		"number": `\{"id":[0-9]{4}([0-9])`,
		"vote":   `"voters":\[[0-9]{4}([0-9])`,
		// etcd panics of such a version.
		"version": `clusterVersion3(\.)`,
	} {
		places := regexp.MustCompile(pattern).FindAllSubmatchIndex(b, -1)
		if len(places) == 0 {
			t.Errorf("%s: there is none", what)
		}
		next := copied(t, dir)
		change(t, databaseIn(next), func(b []byte) []byte {
			for _, place := range places { // in pages that are not in use, too
				b[place[2]] ^= 1
			}
			return b
		})
		if !startDamaged(t, what, next) {
			t.Errorf("%s: it was not found", what)
		}
	}
}

// TestDamagedFiles: pages of zeros, files that are cut off or older, and garbage do not end the process, and grant nothing twice.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	dir, db := used(t)
	info, err := os.Stat(db)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for at := int64(0); at < info.Size(); at += page {
		if len(bytes.TrimRight(whole[at:min(at+page, info.Size())], "\x00")) == 0 {
			continue // nothing was ever written there
		}
		for what, f := range map[string]func(b []byte){
			"zeros":   func(b []byte) { clear(b) },
			"garbage": func(b []byte) { copy(b, strings.Repeat("\xa5\x5a", page/2)) },
		} {
			next := copied(t, dir)
			change(t, databaseIn(next), func(b []byte) []byte {
				f(b[at:min(at+page, int64(len(b)))])
				return b
			})
			startDamaged(t, fmt.Sprintf("%s at %d", what, at), next)
			_ = os.RemoveAll(next)
		}
	}
	for _, size := range []int64{0, 100, page, 3 * page, info.Size() / 2, info.Size() - 1} {
		next := copied(t, dir)
		change(t, databaseIn(next), func(b []byte) []byte { return b[:size] })
		startDamaged(t, fmt.Sprintf("cut off at %d", size), next)
		_ = os.RemoveAll(next)
	}
	next := copied(t, dir)
	segments, err := filepath.Glob(filepath.Join(next, "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	change(t, segments[len(segments)-1], func(b []byte) []byte {
		clear(b[end1(t, next)-1500:])
		return b
	})
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
