package load

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// live tells how a run goes: in one line of a terminal that changes, or in a line every second.
type live struct {
	w       io.Writer
	out     terminal.Output
	run     *run
	show    bool
	last    int64         // requests when it was told before
	lastAt  time.Duration // and when that was
	columns int           // of the line that is there
}

func newLive(w io.Writer, o *options, r *run) *live {
	out := terminal.Of(w)
	return &live{w: w, out: out, run: r, show: out.Interactive || o.progress}
}

// watch tells it until the run is over.
func (l *live) watch(over <-chan struct{}) {
	if !l.show {
		return
	}
	period := time.Second
	if l.out.Interactive {
		period /= 2
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.tell()
		case <-over:
			l.clear()
			return
		}
	}
}

func (l *live) tell() {
	now := l.run.now()
	var line string
	if now < l.run.from {
		line = fmt.Sprintf("warming up, %s left", tenths(l.run.from-now))
	} else {
		line = l.line(totals(l.run.shards), now)
	}
	if !l.out.Interactive {
		fmt.Fprintln(l.w, line)
		return
	}
	line = runewidth.Truncate(line, l.out.Width-1, "…")
	columns := runewidth.StringWidth(line)
	fmt.Fprint(l.w, "\r"+line+strings.Repeat(" ", max(0, l.columns-columns)))
	l.columns = columns
}

// line is what is known now. The rate is that since the line before.
func (l *live) line(t *shard, now time.Duration) string {
	requests := t.requests()
	since := now - max(l.lastAt, l.run.from)
	rate := float64(requests-l.last) / max(since.Seconds(), 1e-9)
	l.last, l.lastAt = requests, now
	return fmt.Sprintf("%s  %s/s  refused %s  errors %s  p50 %s  p99 %s",
		tenths(now-l.run.from), terminal.Number(int64(rate)), share(t.counts[refused], requests),
		terminal.Number(t.counts[failed]),
		latency(quantile(t, 50)), latency(quantile(t, 99)))
}

func quantile(t *shard, percent float64) time.Duration {
	return time.Duration(t.response.ValueAtPercentile(percent))
}

// clear takes the line away.
func (l *live) clear() {
	if l.columns > 0 {
		fmt.Fprint(l.w, "\r"+strings.Repeat(" ", l.columns)+"\r")
	}
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
