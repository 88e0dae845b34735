//go:build unix

package overload

import "syscall"

// processTime is the processor time that this process has used, in nanoseconds.
func processTime() (int64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return u.Utime.Nano() + u.Stime.Nano(), nil
}
