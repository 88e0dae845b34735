package redis

import (
	"testing"
	"time"
)

// TestServerKilled kills the server under load and starts it again, three times. With its data on disk after every command
// nothing is allowed above the limit. With appendfsync everysec the data survive the process, though not the machine, but for
// those that were not written yet as the disk was busy: at most those of two seconds. Without persistence each limit begins
// anew with every start, and not more often.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		late bool // some may be lost
		lost bool // all are
	}{
		{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, false, false},
		{"appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, true, false},
		{"no persistence", []string{"--appendonly", "no"}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const timeout = 250 * time.Millisecond
			restarts := 2 * rounds(t)
			server := startServer(t, c.args...)
			s := server.open(Options{Timeout: timeout})
			l := newLoad(t, faultCharges(50, 50_000), s).start(16)
			l.more(2000) // the small limits are used up
			for range restarts {
				server.kill()
				failed := l.failed.Load()
				until(t, "calls fail", func() bool { return l.failed.Load() > failed+20 })
				server.start()
				l.more(2000)
			}
			l.stop()
			sum := l.drain(server.open(Options{}))
			l.report(c.name, sum)
			if !c.late && sum.above > 0 || !c.lost && sum.above > int64(restarts)*2000 {
				t.Errorf("%d above the limit", sum.above)
			}
			if most := float64(1 + restarts); c.lost && (sum.most > most || sum.most < most-0.5) {
				t.Errorf("at most %.3f of a limit were admitted, want up to %v: one more for each restart", sum.most, most)
			}
		})
	}
}
