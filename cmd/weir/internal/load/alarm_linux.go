package load

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits more precisely than [time.Sleep], whose resolution on Linux is a millisecond where nothing else keeps the
// program awake. It is a timer of the kernel that is read like a file, so that waiting occupies no thread.
type alarm struct {
	file   *os.File
	fd     int
	number [8]byte
}

// newAlarm returns an alarm that must be closed. If there can be no more timers it sleeps.
func newAlarm() *alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &alarm{}
	}
	return &alarm{file: os.NewFile(uintptr(fd), "timer"), fd: fd}
}

// wait waits for d, which is more than 0.
func (a *alarm) wait(d time.Duration) {
	if a.file == nil {
		rest(d)
		return
	}
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if unix.TimerfdSettime(a.fd, 0, &value, nil) != nil {
		rest(d)
		return
	}
	if _, err := a.file.Read(a.number[:]); err != nil {
		rest(d)
	}
}

func (a *alarm) close() {
	if a.file != nil {
		_ = a.file.Close() // it was only read
	}
}
