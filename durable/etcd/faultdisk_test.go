//go:build linux

package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/limits"
)

// tinyFile is how far files can be written at the end of a disk that is full.
const tinyFile = 4096

// fullDisk leaves no room for the owner: on a disk of its own that is filled, or, where none can be mounted, by a limit on the size of
// what it writes. It must not grant what it cannot write, and another node takes over.
func fullDisk(r *round) {
	r.more(40)
	owner := r.cluster.owner()
	r.strike(owner.config.Index)
	filler := ""
	if r.cluster.mounted {
		filler = fill(r.cluster.tb, owner.config.Directory)
	} else {
		limit := unix.Rlimit{Cur: tinyFile, Max: tinyFile}
		if err := unix.Prlimit(owner.command.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
			r.cluster.tb.Fatal(err)
		}
	}
	r.cluster.until("another node owns the limits", func() bool { return r.cluster.owner() != owner })
	r.settle(monotonic(), owner.config.Index)
	r.more(40)
	if filler != "" {
		if err := os.Remove(filler); err != nil {
			r.cluster.tb.Fatal(err)
		}
	}
	owner.kill()
	r.died(1)
	r.cluster.startAll()
	owner.load(r.config)
	r.settle(monotonic())
}

// fill writes to the disk of a directory until that fails.
func fill(tb testing.TB, directory string) string {
	tb.Helper()
	name := filepath.Join(directory, "filler")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			tb.Fatalf("the disk cannot be filled: %v", err)
		}
		err = nil
	}
	return name
}

// directories are where the nodes of a cluster keep what they write.
type directories struct {
	of      func(i int) string
	mounted bool // each is a disk of its own, which can be filled
	memory  bool // they are in memory
}

// plain are directories in memory where there is such room, and those of tests elsewhere. How long the disk of a machine takes to
// write, to which other tests write at the same time, is not what is looked at: where it takes as long as a term no node keeps one.
func plain(tb testing.TB) directories {
	tb.Helper()
	const memory, room = "/dev/shm", 1 << 30
	base := ""
	var disk unix.Statfs_t
	if unix.Statfs(memory, &disk) == nil && disk.Type == unix.TMPFS_MAGIC && disk.Bavail*uint64(disk.Bsize) >= room {
		base, _ = os.MkdirTemp(memory, "weir-test-") //nolint:usetesting // TempDir is on a disk
	}
	inMemory := base != ""
	if inMemory {
		tb.Cleanup(func() { _ = os.RemoveAll(base) })
	} else {
		base = tb.TempDir()
	}
	return directories{of: func(i int) string { return filepath.Join(base, fmt.Sprintf("n%d", i)) }, memory: inMemory}
}

// disks mounts a small disk in memory for each node, if that is permitted.
func disks(tb testing.TB) directories {
	tb.Helper()
	base := tb.TempDir()
	d := directories{of: func(i int) string { return filepath.Join(base, fmt.Sprintf("n%d", i)) }, mounted: true, memory: true}
	for i := range testProcess {
		if err := os.Mkdir(d.of(i), 0o700); err != nil {
			tb.Fatal(err)
		}
		// Of etcd's log there are up to six files of 6 MB, the database has up to 17 MB, and a start needs 8 MB: it is full only when it
		// is filled, however many rounds there are.
		if err := unix.Mount("none", d.of(i), "tmpfs", 0, "size=64m"); err != nil {
			tb.Logf("no disk can be mounted, so the size of files is limited: %v", err)
			return plain(tb)
		}
		tb.Cleanup(func() {
			if err := unix.Unmount(d.of(i), unix.MNT_DETACH); err != nil {
				tb.Error(err)
			}
		})
	}
	return d
}

// logEnd is the last file of etcd's log of a node, and where what was written to it ends.
func logEnd(tb testing.TB, directory string) (name string, end int64) {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "member", "wal", "*.wal"))
	if err != nil || len(names) == 0 {
		tb.Fatalf("there is no log in %s: %v", directory, err)
	}
	slices.Sort(names)
	for len(names) > 0 {
		name = names[len(names)-1]
		names = names[:len(names)-1]
		b, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		if end = int64(len(bytes.TrimRight(b, "\x00"))); end > 512 {
			return name, end
		}
	}
	tb.Fatalf("there is nothing in the log in %s", directory)
	return "", 0
}

// spoilLog ruins the end of the log of the owner while it is down, and looks what it makes of that when it starts. The others, who
// have all that it had, go on.
func spoilLog(r *round, spoil func(name string, end int64) error, refuses bool) {
	r.more(40)
	c := r.cluster
	owner := c.owner()
	r.strike(owner.config.Index)
	owner.kill()
	r.died(1)
	r.settle(r.fault, owner.config.Index)
	r.more(20)
	kept := filepath.Join(c.tb.TempDir(), "kept")
	data := filepath.Join(owner.config.Directory, "member")
	if err := os.CopyFS(kept, os.DirFS(data)); err != nil {
		c.tb.Fatal(err)
	}
	name, end := logEnd(c.tb, owner.config.Directory)
	if err := spoil(name, end); err != nil {
		c.tb.Fatal(err)
	}
	owner.start()
	err := owner.wait()
	if err == nil {
		owner.load(r.config)
		back := monotonic()
		c.until("a node with a ruined log takes part or says that it cannot", func() bool {
			err = owner.broken()
			return err != nil || c.history.served(owner.config.Index) > back
		})
	}
	switch {
	case err == nil && refuses:
		c.tb.Errorf("%s: a node starts whose log is garbage", c.name)
	case err != nil && !strings.Contains(err.Error(), owner.config.Directory) && !strings.Contains(err.Error(), "cannot go on"):
		c.tb.Errorf("%s: a node with a ruined log says %v\n%s", c.name, err, owner.stderr)
	}
	r.more(20)
	if err == nil {
		return
	}
	c.tb.Logf("a node with a ruined log says: %v", err)
	owner.kill()
	if err := os.RemoveAll(data); err != nil {
		c.tb.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(kept)); err != nil {
		c.tb.Fatal(err)
	}
	c.startAll()
	owner.load(r.config)
	r.settle(monotonic())
}

// tornLog cuts the last record of the log in two, as a loss of power does. Unlike then, others may have been told that it was there: the node
// starts, and if they have it may notice and say so.
func tornLog(r *round) {
	spoilLog(r, func(name string, end int64) error { return os.Truncate(name, end-7) }, false)
}

// garbledLog overwrites the last record of the log.
func garbledLog(r *round) {
	spoilLog(r, func(name string, _ int64) error {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		all := records(r.cluster.tb, name)
		last := all[len(all)-1]
		garbage := make([]byte, last.to-last.from)
		for i := range garbage {
			garbage[i] = byte(1 + r.random.IntN(255))
		}
		_, err = f.WriteAt(garbage, last.from)
		return err
	}, true)
}

// spoiledRecord overwrites the record of one key, whose next owner can then not know what was granted: it must grant nothing of that
// key, and say of which, until the record is there again.
func spoiledRecord(r *round) {
	r.more(40)
	c := r.cluster
	ctx, cancel := context.WithTimeout(context.Background(), startDelay)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.clients, DialTimeout: callTimeout})
	if err != nil {
		c.tb.Fatal(err)
	}
	defer client.Close()
	ask := r.config.request(quotaKey)
	ask.Key = fmt.Sprintf("spoiled-%d", c.round)
	ask.N = 2
	const taken = 10
	for n := int64(0); n < taken; {
		if a := spectest.Acquire(ctx, c.follower, ask); a.Reason == weir.ReasonNone {
			n += ask.N
		} else if ctx.Err() != nil {
			c.tb.Fatal(a.Reason, a.Err)
		}
	}
	name := fmt.Sprintf("/weir/state/%s%d:%s%s", limits.Prefix(ask.Limit.Algorithm()), len(faultPolicy), faultPolicy, ask.Key)
	found, err := client.Get(ctx, name)
	if err != nil || len(found.Kvs) != 1 {
		c.tb.Fatalf("there is no record %s: %v", name, err)
	}
	good := found.Kvs[0].GetValue()
	spoiled := [][]byte{{}, good[:len(good)/2], []byte("garbage"), append([]byte{99}, good[1:]...), append(slices.Clone(good), 0)}
	bad := spoiled[r.random.IntN(len(spoiled))]
	put := func(value []byte) { // which may be lost on its way to a leader that has just died
		c.until("a record is put", func() bool {
			_, err := client.Put(ctx, name, string(value))
			return err == nil
		})
	}
	put(bad)
	owner := c.owner()
	r.strike(owner.config.Index)
	owner.kill()
	r.died(1)
	r.settle(r.fault, owner.config.Index)
	c.until("the key is refused by name", func() bool {
		a := spectest.Acquire(ctx, c.follower, ask)
		if a.Reason == weir.ReasonNone {
			c.tb.Fatalf("%s, round %d: permits are granted of a key whose record is %q", c.name, c.round, bad)
		}
		return a.Reason == weir.ReasonUnavailable && a.Err != nil && strings.Contains(a.Err.Error(), ask.Key)
	})
	put(good)
	var last spectest.Answer
	c.until("the key is back with its record", func() bool {
		last = spectest.Acquire(ctx, c.follower, ask)
		return last.Reason == weir.ReasonNone
	})
	if left := last.Remaining; left > quotaPermits-taken-ask.N {
		c.tb.Errorf("%s, round %d: %d permits are left of %d, of which %d were granted", c.name, c.round, left, quotaPermits, taken+ask.N)
	}
	c.startAll()
	owner.load(r.config)
	r.settle(monotonic())
}
