package overload

import (
	"errors"
	"os"
	"runtime"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/nils"
)

// Pressure is a source of pressure for a [Shedder].
type Pressure interface {
	// Pressure is the part in use of what there is at time now, in nanoseconds on any scale: 0 is nothing, 1 all of it. More than
	// 1, up to 100, means that more is asked for than there is. A source that measures over time measures from one call to the
	// next. The error is ErrNoPressure if there is nothing to read on this machine. Calls do not overlap, and should not take
	// long: a request waits meanwhile.
	Pressure(now int64) (float64, error)
	// String names the source in statistics, such as "cgroup cpu".
	String() string
}

// ErrNoPressure is the error of a source that does not exist on this machine, or not yet.
var ErrNoPressure = errors.New("weir: nothing to read the pressure from")

const maxPressure = 100

// NewPressure returns a source that calls f. A nil f panics.
func NewPressure(name string, f func(now int64) (float64, error)) Pressure { //nolint:ireturn // any source
	if f == nil {
		panic("weir: NewPressure: nil function")
	}
	return pressureFunc{name, f}
}

type pressureFunc struct {
	name string
	f    func(now int64) (float64, error)
}

func (p pressureFunc) Pressure(now int64) (float64, error) { return p.f(now) }

func (p pressureFunc) String() string { return p.name }

// LimiterPressure is the share of the permits of l that is not available: of a [Adaptive] or a [weir.Concurrency] what
// is out. In front of such a limiter a [Shedder] keeps permits free for critical requests: it sheds others before all are out.
// It must not be used with a limiter that takes time to return from Peek. A nil l panics.
func LimiterPressure(name string, l weir.Acquirer) Pressure { //nolint:ireturn // a source is what the interface says
	if nils.Is(l) {
		panic("weir: LimiterPressure: nil limiter")
	}
	return NewPressure(name, func(int64) (float64, error) {
		d := l.Peek(0)
		if d.Limit <= 0 {
			return 0, ErrNoPressure
		}
		return float64(d.Limit-d.Remaining) / float64(d.Limit), nil
	})
}

// SystemPressure is the pressure on the processors that this process may use: [ProcessCPUPressure],
// [SchedulerPressure] with 20 ms, and on Linux the three of [NewCgroupPressure].
func SystemPressure() []Pressure {
	sources := []Pressure{ProcessCPUPressure(), SchedulerPressure(defaultSchedulerLatency)}
	if runtime.GOOS == "linux" {
		sources = append(sources, NewCgroupPressure(os.DirFS("/"))...)
	}
	return sources
}
