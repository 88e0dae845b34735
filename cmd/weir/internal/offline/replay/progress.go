package replay

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const (
	drawEvery = 150 * time.Millisecond
	// barRoom is how many columns the bar itself has at most; the figures have the others.
	barRoom = 30
	// longestLeft is how many seconds it may still take to be told.
	longestLeft = 1e6
)

// bar shows on a terminal how much of the logs has been read. On anything else it does nothing.
type bar struct {
	before int64 // bytes of the logs that are done
	read   atomic.Int64
	done   chan struct{} // nil if nothing is shown
	gone   chan struct{}
}

// newBar shows a bar on w, for logs of that many bytes together, 0 if that is not known.
func newBar(w io.Writer, total int64) *bar {
	out := terminal.Of(w)
	if !out.Interactive {
		return &bar{}
	}
	b := &bar{done: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(b.gone)
		begun, ticks := time.Now(), time.NewTicker(drawEvery)
		defer ticks.Stop()
		for {
			select {
			case <-b.done:
				fmt.Fprint(w, "\r\x1b[K")
				return
			case <-ticks.C:
				fmt.Fprint(w, "\r"+barOf(b.read.Load(), total, time.Since(begun), out.Width-1)+"\x1b[K")
			}
		}
	}()
	return b
}

// barOf is what the terminal shows, in at most that many columns.
func barOf(read, total int64, spent time.Duration, columns int) string {
	rate := float64(read) / spent.Seconds()
	amount, speed := humanize.IBytes(uint64(read)), humanize.IBytes(uint64(rate))+"/s"
	if total == 0 {
		return cutTo(amount+"  "+speed, columns)
	}
	read = min(read, total) // a log may grow
	text := amount + " of " + humanize.IBytes(uint64(total)) + "  " + speed
	if left := float64(total-read) / rate; left < longestLeft {
		text += "  " + time.Duration(left*float64(time.Second)).Round(time.Second).String()
	}
	if room := min(barRoom, columns-len(text)-len("[] ")); room > 0 {
		full := int(float64(read) / float64(total) * float64(room))
		text = "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + text
	}
	return cutTo(text, columns)
}

func cutTo(text string, columns int) string { return text[:max(min(len(text), columns), 0)] }

// at shows that this many bytes of the current log have been read.
func (b *bar) at(offset int64) { b.read.Store(b.before + offset) }

// next begins with another log, after one of which this many bytes have been read.
func (b *bar) next(offset int64) { b.before += offset }

// end removes the bar.
func (b *bar) end() {
	if b.done != nil {
		close(b.done)
		<-b.gone
	}
}
