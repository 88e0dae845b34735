package front_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// TestWhatCouldNotBeReadIsReadAgain, as where the process had too many open files when a file changed. Each error is told once.
func TestWhatCouldNotBeReadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := directory{t, t.TempDir()}
		path := d.write("file", []byte("1"))
		var now string
		var refused error
		var told []string
		read := func() (string, error) { return now, refused }
		f, err := front.NewReread(read, func(now string, err error) {
			if err != nil {
				now += " " + err.Error()
			}
			told = append(told, now)
		}, path)
		if err != nil {
			t.Fatal(err)
		}
		is := func(want string, wantTold ...string) {
			t.Helper()
			for range 3 {
				time.Sleep(time.Second)
				if got := f.Now(); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			if !slices.Equal(told, wantTold) {
				t.Errorf("told %q, want %q", told, wantTold)
			}
			told = nil
		}
		now = "a"
		is("")
		d.write("file", []byte("22"))
		refused = errors.New("unreadable")
		is("", " unreadable")
		refused = errors.New("wrong")
		is("", " wrong")
		d.write("file", []byte("333"))
		is("", " wrong")
		refused = nil
		is("a", "a")
	})
}
