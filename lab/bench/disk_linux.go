package bench

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncData has what was written to a file reach the disk.
func syncData(f *os.File) error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("fdatasync: %w", err)
	}
	return nil
}

// The filesystems that are known by name.
var filesystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: inMemory,
	unix.RAMFS_MAGIC: inMemory, unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", 0x2fc12fc1: "zfs",
}

// filesystem is that of a directory.
func filesystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return unknownFilesystem
	}
	if name := filesystems[int64(s.Type)]; name != "" { //nolint:unconvert // its type is another one on other processors
		return name
	}
	return fmt.Sprintf("%s (%#x)", unknownFilesystem, s.Type)
}
