package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPatience: a client that sends a byte now and then is waited for as long as one that sends nothing, and one that keeps the
// pace for ever. What it sends early counts no further than that.
func TestPatience(t *testing.T) {
	const longest = time.Minute
	for name, c := range map[string]struct {
		every time.Duration
		bytes int
		ends  time.Duration // 0: never
	}{
		"silent":         {20 * time.Second, 0, longest},
		"drips":          {20 * time.Second, 1, longest + 20*time.Second},
		"slow":           {time.Second, pace / 2, 2 * longest},
		"keeps the pace": {time.Second, pace, 0},
		"fast":           {time.Second, 1 << 30, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := patience{longest, longest}
			begun := time.Now()
			for p.left > 0 && time.Since(begun) < time.Hour {
				start := time.Now()
				time.Sleep(c.every)
				if p.waited(start, c.bytes); p.left > longest {
					t.Errorf("%s: %v are left", name, p.left)
				}
			}
			ended := p.left <= 0
			if took := time.Since(begun); ended != (c.ends > 0) || ended && (took < c.ends-c.every || took > c.ends+c.every) {
				t.Errorf("%s: ends %v after %v, want %v", name, ended, took, c.ends)
			}
		})
	}
}
