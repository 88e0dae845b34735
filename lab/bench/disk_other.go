//go:build !linux

package bench

import "os"

// syncData has what was written to a file reach the disk.
func syncData(f *os.File) error { return f.Sync() }

// filesystem is that of a directory.
func filesystem(string) string { return unknownFilesystem }
