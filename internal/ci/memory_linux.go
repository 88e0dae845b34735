package main

import (
	"fmt"
	"os"
	"syscall"
)

const (
	memory     = "/dev/shm"
	memoryRoom = 8 << 30 // what all tests together write is a small part of that

	tmpfsMagic = 0x01021994
	noExec     = 0x8
)

// memoryDirectory makes a directory for the files of tests in memory, which whoever calls it removes, or answers "" where
// there is no such room. Tests that write to a disk at the same time have each other wait for it: for seconds, where the disk
// is slow.
func memoryDirectory() string {
	var room syscall.Statfs_t
	if syscall.Statfs(memory, &room) != nil || room.Type != tmpfsMagic || room.Flags&noExec != 0 ||
		room.Bavail*uint64(room.Bsize) < memoryRoom {
		return ""
	}

	directory, err := os.MkdirTemp(memory, "weir-ci-")
	if err != nil {
		return ""
	}

	// Servers that do not run as root have their files below it, as they do in /tmp.
	if err := os.Chmod(directory, 0o777|os.ModeSticky); err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
	}

	return directory
}
