package replay

import (
	"testing"
	"time"
)

// TestBar: it says how much there is, how fast it goes and how long it takes, and never breaks into two lines.
func TestBar(t *testing.T) {
	for _, c := range []struct {
		read, total int64
		spent       time.Duration
		columns     int
		want        string
	}{
		{0, 0, time.Second, 79, "0 B  0 B/s"},
		{3 << 20, 0, 2 * time.Second, 79, "3.0 MiB  1.5 MiB/s"},
		{0, 1 << 30, time.Second, 79, "[                              ] 0 B of 1.0 GiB  0 B/s"},
		{1 << 29, 1 << 30, time.Minute, 79, "[===============               ] 512 MiB of 1.0 GiB  8.5 MiB/s  1m0s"},
		{2 << 30, 1 << 30, time.Second, 79, "[==============================] 2.0 GiB of 1.0 GiB  2.0 GiB/s  0s"},
		{1 << 29, 1 << 30, time.Minute, 50, "[======      ] 512 MiB of 1.0 GiB  8.5 MiB/s  1m0s"},
		{100, 1 << 62, 10 * time.Second, 79, "[                              ] 100 B of 4.0 EiB  10 B/s"},
		{1 << 29, 1 << 30, time.Minute, 12, "512 MiB of 1"},
		{1 << 29, 0, time.Minute, 0, ""},
	} {
		if got := barOf(c.read, c.total, c.spent, c.columns); got != c.want || len(got) > max(c.columns, 0) {
			t.Errorf("%d of %d in %v, %d columns: %q, want %q", c.read, c.total, c.spent, c.columns, got, c.want)
		}
	}
}
