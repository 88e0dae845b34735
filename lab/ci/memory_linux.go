package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	memory     = "/dev/shm"
	memoryRoom = 8 << 30 // what all tests together write is a small part of that
	memoryLow  = memoryRoom / 2
	memoryName = "weir-ci-"

	tmpfsMagic = 0x01021994
	readOnly   = 0x1
	noExec     = 0x8
	fewFiles   = 100_000
)

// memoryDirectory makes a directory for the files of tests in memory, which remove ends, or returns "" where there is no room
// for it: neither below /dev/shm nor, as that is nothing else, in the memory of the machine and of the container. Tests that
// write to a disk at the same time have each other wait for it: for seconds, where the disk is slow.
func memoryDirectory(ctx context.Context) (directory string, remove func()) {
	removeLeftovers(memory) // which may be what takes the room

	if !hasRoom(memory, memoryRoom) || !hasMemory(os.DirFS("/"), memoryRoom) || isCleared() {
		return "", nil
	}

	return makeDirectory(ctx, memory)
}

// memoryIsLow says that tests which begin now had better have their files elsewhere.
func memoryIsLow() bool { return !hasRoom(memory, memoryLow) || !hasMemory(os.DirFS("/"), memoryLow) }

// hasRoom reports whether a directory is in memory, and has so much room for files that can be executed.
func hasRoom(directory string, room uint64) bool {
	var is syscall.Statfs_t

	return syscall.Statfs(directory, &is) == nil && is.Type == tmpfsMagic && is.Flags&(readOnly|noExec) == 0 &&
		is.Bavail*uint64(is.Bsize) >= room && (is.Files == 0 || is.Ffree >= fewFiles)
}

// isCleared reports whether the system may remove what is in /dev/shm: systemd-logind does when a user logs out who is not one
// of the system.
func isCleared() bool {
	const firstUser = 1000

	_, err := os.Stat("/run/systemd/seats")

	return err == nil && os.Getuid() >= firstUser
}

// makeDirectory makes a directory and locks it. A directory without a lock is one that was left behind.
func makeDirectory(ctx context.Context, parent string) (directory string, remove func()) {
	directory, err := os.MkdirTemp(parent, memoryName)
	if err != nil {
		return "", nil
	}

	unlock, err := lock(directory, 0)
	if err == nil {
		err = makeUsable(ctx, directory)
	}

	remove = func() {
		_ = os.RemoveAll(directory)

		unlock()
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "ci: files of tests are not in memory:", err)
		remove()

		return "", nil
	}

	return directory, remove
}

// lock locks a directory until unlock, or the end of the process. With LOCK_NB in how it fails if another process has the lock.
func lock(directory string, how int) (unlock func(), err error) {
	fd, err := syscall.Open(directory, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return func() {}, fmt.Errorf("open: %w", err)
	}

	unlock = func() { _ = syscall.Close(fd) }

	if err := syscall.Flock(fd, syscall.LOCK_EX|how); err != nil {
		return unlock, fmt.Errorf("lock: %w", err)
	}

	return unlock, nil
}

// makeUsable lets every user write to a directory, as servers that do not run as root have their files below it. It fails if
// programs cannot be executed there.
func makeUsable(ctx context.Context, directory string) error {
	const patience = time.Minute

	if err := os.Chmod(directory, 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}

	program := filepath.Join(directory, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it is executed
		return fmt.Errorf("write: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	run := append(filesIn(directory), program)
	if err := exec.CommandContext(ctx, run[0], run[1:]...).Run(); err != nil {
		return fmt.Errorf("execute: %w", err)
	}

	if err := os.Remove(program); err != nil {
		return fmt.Errorf("remove: %w", err)
	}

	return nil
}

// removeLeftovers removes the directories of processes that were killed.
func removeLeftovers(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, memoryName+"*")) // the pattern is right

	for _, directory := range found {
		unlock, err := lock(directory, syscall.LOCK_NB)
		if err == nil {
			_ = os.RemoveAll(directory) // what another user has left stays
		}

		unlock()
	}
}

// hasMemory reports whether the machine, and every control group that this process is in, has so much memory left. What is kept
// only to be read again counts as left. root is where the file systems of the machine are.
func hasMemory(root fs.FS, room uint64) bool {
	available, ok := fieldOf(root, "proc/meminfo", "MemAvailable:")
	if !ok || available*1024 < room {
		return false
	}

	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // there are none without

	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}

		group := controlGroup{root, "sys/fs/cgroup", "memory.max", "memory.current", ""}

		switch {
		case parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			group = controlGroup{
				root, "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_",
			}
		default:
			continue
		}

		// In a container the path may be that of the machine, of which only the end is to be seen, or nothing.
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			if !group.has(at, room) {
				return false
			}

			if at == "/" {
				break
			}
		}
	}

	return true
}

// controlGroup is where control groups are, and how their files are called.
type controlGroup struct {
	root                  fs.FS
	in, most, used, whole string
}

// has reports whether a group has so much memory left. One that has no bound, or is not to be seen, has all.
func (g controlGroup) has(at string, room uint64) bool {
	number := func(name string) (uint64, bool) {
		text, err := fs.ReadFile(g.root, path.Join(g.in, at, name))
		if err != nil {
			return 0, false
		}

		n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)

		return n, err == nil
	}

	most, bounded := number(g.most)
	if !bounded {
		return true
	}

	used, _ := number(g.used) // none, if it is not told

	for _, kept := range []string{"inactive_file", "active_file"} {
		n, _ := fieldOf(g.root, path.Join(g.in, at, "memory.stat"), g.whole+kept)
		used -= min(n, used)
	}

	return most >= used && most-used >= room
}

// fieldOf is the number behind a name in a file of lines.
func fieldOf(root fs.FS, file, name string) (n uint64, ok bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}

	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) > 1 && words[0] == name {
			n, err = strconv.ParseUint(words[1], 10, 64)

			return n, err == nil
		}
	}

	return 0, false
}
