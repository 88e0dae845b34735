package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// watched has a file, whose times are those of the bubble, and limits that watch it. Has reports whether a policy is there after
// so much time.
func watched(t *testing.T) (write func(text string, written time.Time), has func(name string, after time.Duration) bool, l *Limits) {
	t.Helper()
	l, path, _ := loaded(t, "a")
	write = func(text string, written time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, written, written)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := l.Watch(ctx)
	t.Cleanup(func() { cancel(); <-ended })
	has = func(name string, after time.Duration) bool {
		time.Sleep(after)
		synctest.Wait()
		return l.Has(name)
	}
	return write, has, l
}

// between is a time between two looks of a watch that has begun at a whole second, and often how often a file is written that no
// two looks see alike.
const (
	between = lookEvery / 3
	often   = lookEvery * 4 / 5
)

// TestWatchIsPrompt: a change is in force within a second.
func TestWatchIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write, has, _ := watched(t)
		for i := range 20 {
			name := fmt.Sprint("p", i)
			time.Sleep(13 * time.Millisecond * time.Duration(i)) // it comes at any time between two looks
			write(name, time.Now())
			if !has(name, time.Second) {
				t.Errorf("%s is not in force", name)
			}
		}
	})
}

// TestWatchSeesWhatLooksTheSame: a file that is written in place with as many bytes, within the moment in which it was read, is
// read again.
func TestWatchSeesWhatLooksTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write, has, _ := watched(t)
		time.Sleep(time.Hour + between)
		moment := time.Now()
		write("b", moment)
		if !has("b", time.Second) {
			t.Fatal("the first change is not seen")
		}
		write("c", moment)
		if !has("c", 3*time.Second) {
			t.Error("a change within the same moment is not seen")
		}
	})
}

// TestWatchWaitsForTheWholeFile: what an editor has written in part is not read, and what changes all the time is in the end.
func TestWatchWaitsForTheWholeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write, has, l := watched(t)
		time.Sleep(time.Hour + between)
		for _, text := range []string{"bad", "bad bad", "b"} {
			write(text, time.Now())
			time.Sleep(often)
		}
		if !has("b", time.Second) || l.Status().Refused > 0 {
			t.Errorf("%+v", l.Status())
		}
		before := l.Status().Reloads
		for i := range 15 {
			write(fmt.Sprint("p", i), time.Now())
			time.Sleep(often)
		}
		if l.Status().Reloads == before {
			t.Error("a file that changes all the time is never read")
		}
	})
}
