package replay

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// bar shows on a terminal how much of the logs has been read. On anything else it does nothing.
type bar struct {
	container *mpb.Progress
	bar       *mpb.Bar
	before    int64 // bytes of the logs that are done
}

// newBar shows a bar on w, for logs of that many bytes together, 0 if that is not known.
func newBar(w io.Writer, total int64) *bar {
	out := terminal.Of(w)
	if !out.Interactive {
		return &bar{}
	}
	container := mpb.New(mpb.WithOutput(w), mpb.WithWidth(min(out.Width, 80)))
	amount := decor.CountersKibiByte("% .1f / % .1f")
	style := mpb.BarStyle().Build()
	after := []decor.Decorator{
		decor.AverageSpeed(decor.SizeB1024(0), " % .1f"), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO),
	}
	if total == 0 {
		amount = decor.CurrentKibiByte("% .1f")
		style = mpb.SpinnerStyle().PositionLeft().Build()
		after = after[:1]
	}
	return &bar{
		container: container,
		bar: container.MustAdd(total, style, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(amount), mpb.AppendDecorators(after...)),
	}
}

// at shows that this many bytes of the current log have been read.
func (b *bar) at(offset int64) {
	if b.bar != nil {
		b.bar.SetCurrent(b.before + offset)
	}
}

// next begins with another log, after one of which this many bytes have been read.
func (b *bar) next(offset int64) { b.before += offset }

// end removes the bar.
func (b *bar) end() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.container.Wait()
	}
}
