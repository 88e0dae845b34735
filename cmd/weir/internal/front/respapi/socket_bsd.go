//go:build unix && !linux

package respapi

import "syscall"

// tellWhatIsLeft is false: the system has no such thing.
func tellWhatIsLeft(uintptr) bool { return false }

func readNow(fd uintptr, b []byte) (n int, empty bool, err error) {
	n, err = syscall.Read(int(fd), b)
	return n, false, err
}

func writeNow(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
