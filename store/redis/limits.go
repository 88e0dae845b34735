package redis

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// The first byte of a record says how it counts.
const (
	codeBucket      = 'T'
	codeFixed       = 'F'
	codeSliding     = 'S'
	codeCounter     = 'A'
	codeConcurrency = 'C'
	codeCalendar    = 'K'
)

const (
	microsecond     = int64(time.Microsecond)
	defaultSegments = 10
	// mostTerm is the largest number of a rate in its lowest terms: the script multiplies and divides by it.
	mostTerm = 1 << 50
)

// law is a limit as the script takes it, and what is needed to make decisions of its replies. Durations given to package algo
// are microseconds where it says nanoseconds.
type law struct {
	code   byte
	most   int64 // permits that can be granted at once
	window int64
	// head is how the argument of a charge begins: the length of the header of the record, the header, and a zero.
	head string
	// one is the argument of a charge of 1 permit, except for calendars.
	one string

	bucket   bucket
	fixed    algo.Window
	sliding  algo.SlidingWindow
	counter  algo.SlidingCounter
	inUse    algo.Concurrency
	calendar algo.Window
	months   algo.Window // the same windows with a limit of 1, to count them
}

// newLaw returns an *[weir.OptionError] for a limit that is wrong, or that the script could not count exactly.
func newLaw(l weir.Limit) (*law, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	w := &law{most: l.Permits()}
	var header []byte
	var err error
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		w.code = codeBucket
		if w.bucket, err = newBucket(l.Rate(), w.most); err != nil {
			return nil, err
		}
		b := &w.bucket
		header = numbers(header, b.per, b.burst, b.num, b.full.us, b.full.part)
	case weir.AlgorithmConcurrency:
		w.code = codeConcurrency
		w.inUse, err = algo.NewConcurrency(w.most)
		header = numbers(header, w.most)
	case weir.AlgorithmCalendarWindow:
		w.code = codeCalendar
		if w.calendar, err = algo.NewCalendarWindow(w.most, l.Calendar()); err == nil {
			w.months, err = algo.NewCalendarWindow(1, l.Calendar())
		}
		name := l.Calendar().String()
		if len(name) > 200 {
			return nil, &weir.OptionError{
				Option: "Limit.Calendar", Value: fmt.Sprintf("%.40q", name), Accepted: "at most 200 bytes long in words",
			}
		}
		header = append(append(numbers(header, w.most), byte(len(name))), name...)
	default:
		if int64(l.Rate().Period)%microsecond != 0 {
			return nil, &weir.OptionError{
				Option: "Limit.Rate.Period", Value: l.Rate().Period.String(),
				Accepted: "a whole number of microseconds, which are the unit of the store",
			}
		}
		w.window = int64(l.Rate().Period) / microsecond
		header, err = w.windows(l)
	}
	if err != nil {
		return nil, err
	}
	w.head = string(append(append([]byte{byte(len(header) + 1), w.code}, header...), 0))
	if w.code != codeCalendar {
		w.one = w.argument(nil, 1)
	}
	return w, nil
}

func (w *law) windows(l weir.Limit) (header []byte, err error) {
	n, window := w.most, time.Duration(w.window)
	header = numbers(nil, n, w.window)
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow:
		w.code = codeFixed
		w.fixed, err = algo.NewFixedWindow(n, window, 0)
	case weir.AlgorithmSlidingCounter:
		w.code = codeCounter
		w.counter, err = algo.NewSlidingCounter(n, window, 0)
	default: // weir.AlgorithmSlidingWindow
		w.code = codeSliding
		segments := l.Segments()
		if segments == 0 {
			segments = defaultSegments
		}
		if int64(segments) > w.window {
			return nil, &weir.OptionError{
				Option: "Limit.Segments", Value: fmt.Sprint(segments),
				Accepted: fmt.Sprintf("at most 1 per microsecond of the window, here %d", w.window),
			}
		}
		header = numbers(header, int64(segments))
		w.sliding, err = algo.NewSlidingWindow(n, window, segments, 0)
	}
	return header, err
}

// argument is the argument for n permits; n < 0 is what cannot be granted. Of a calendar it lacks the edges.
func (w *law) argument(buf []byte, n int64) string {
	if n == 1 && w.one != "" {
		return w.one
	}
	return string(w.appendArgument(buf, n))
}

func (w *law) appendArgument(buf []byte, n int64) []byte {
	buf = append(buf, w.head...)
	if n > w.most {
		n = -1
	}
	buf = numbers(buf, n)
	if w.code == codeBucket {
		cost := w.bucket.cost(min(max(n, 1), w.most))
		buf = numbers(buf, cost.us, cost.part)
	}
	return buf
}

// settling is the argument for a charge that really cost n permits, which may be more than the limit.
func (w *law) settling(n int64) []byte {
	return numbers(append([]byte(nil), w.head...), n)
}

// edges appends the edges of a calendar around a time, and how many windows lie between from and the first of them.
func (w *law) edges(buf []byte, around, from int64) []byte {
	begin, end := w.calendar.Window(around * microsecond)
	before, _ := w.calendar.Window(begin - 1)
	_, after := w.calendar.Window(end)
	_, last := w.calendar.Window(after)
	passed := int64(0)
	if from != 0 {
		s := algo.WindowState{Window: from * microsecond, Used: algo.MaxPermits}
		passed = algo.MaxPermits - w.months.Refund(s, before, 0).Used
	}
	return numbers(buf, from, passed, before/microsecond, begin/microsecond, end/microsecond, after/microsecond, last/microsecond)
}

// numbers appends doubles, which are exact up to 2^53.
func numbers(buf []byte, values ...int64) []byte {
	for _, v := range values {
		buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(float64(v)))
	}
	return buf
}

// span is a time of us + part/num microseconds, 0 <= part < num.
type span struct{ us, part int64 }

// bucket is a token bucket in microseconds: the arithmetic of [algo.TokenBucket], for rates of more than a permit per
// microsecond as well.
type bucket struct {
	burst int64
	num   int64 // num permits in per microseconds, lowest terms
	per   int64
	full  span
}

func newBucket(r weir.Rate, burst int64) (bucket, error) {
	num, per := r.Permits*microsecond, int64(r.Period)
	a, b := num, per
	for b != 0 {
		a, b = b, a%b
	}
	k := bucket{burst: burst, num: num / a, per: per / a}
	if k.num > mostTerm || k.per > mostTerm {
		return bucket{}, &weir.OptionError{
			Option: "Limit.Rate", Value: r.String(),
			Accepted: fmt.Sprintf("a ratio of numbers up to 2^50 in permits per microsecond, here %d/%d", k.num, k.per),
		}
	}
	k.full = k.cost(burst)
	return k, nil
}

// cost is the time that n permits take to be regained, for n up to the burst.
func (b *bucket) cost(n int64) span {
	hi, lo := bits.Mul64(uint64(n), uint64(b.per))
	quo, rem := bits.Div64(hi, lo, uint64(b.num))
	return span{int64(quo), int64(rem)}
}

// available is how many permits are there if x is missing to full.
func (b *bucket) available(x span) int64 {
	y := b.minus(b.full, x)
	if y.us < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(y.us), uint64(b.num))
	lo, carry := bits.Add64(lo, uint64(y.part), 0)
	quo, _ := bits.Div64(hi+carry, lo, uint64(b.per))
	return int64(quo)
}

func (b *bucket) minus(x, y span) span {
	z := span{x.us - y.us, x.part - y.part}
	if z.part < 0 {
		z.part += b.num
		z.us--
	}
	return z
}

func (b *bucket) plus(x, y span) span {
	z := span{x.us + y.us, x.part + y.part}
	if z.part >= b.num {
		z.part -= b.num
		z.us++
	}
	return z
}

// ceil is the time rounded up to a microsecond.
func (x span) ceil() time.Duration {
	if x.part > 0 {
		x.us++
	}
	return time.Duration(x.us)
}
