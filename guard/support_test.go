package guard_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

const day = 24 * time.Hour

// bubbleClock is a Clock of the time of the bubble: it takes a guard through the paths of guards with a Clock.
type bubbleClock struct{}

func (bubbleClock) Now() int64 { return time.Now().UnixNano() }

func (bubbleClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// anyClock runs f with the process clock and with a Clock.
func anyClock(t *testing.T, f func(t *testing.T, clock weir.Clock)) {
	t.Helper()
	t.Run("process clock", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, nil) }) })
	t.Run("a clock", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, bubbleClock{}) }) })
}

// lines are the lines of text without indentation.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}
