//go:build unix

package live

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchReadsWhatCouldNotBeRead: a file that was changed while the process had too many open files is read once it has fewer.
func TestWatchReadsWhatCouldNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write, has, l := watched(t)
		time.Sleep(time.Hour)
		write("b", time.Now())
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		none := before
		none.Cur = 0
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
			t.Fatal(err)
		}
		seen := has("b", time.Minute)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if s := l.Status(); seen || s.Refused != 1 || !strings.Contains(s.LastError, "too many open files") {
			t.Fatalf("%v, %+v", seen, s)
		}
		if !has("b", longest) || l.Status().LastError != "" {
			t.Errorf("%+v", l.Status())
		}
	})
}
