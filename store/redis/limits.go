package redis

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/limits"
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
	microsecond = int64(time.Microsecond)
	// mostTerm is the largest number of a rate in its lowest terms: the script multiplies and divides by it.
	mostTerm = 1 << 50
)

// law is a limit as the script takes it, and the law that makes decisions of its replies.
type law struct {
	algo.Law

	unit int64 // of the time of the law in a microsecond
	code byte
	sent int // numbers of the state in a reply, unless it says how many
	// head is how the argument of a charge begins: the length of the header of the record, the header, and a zero.
	head string
	// one is the argument of a charge of 1 permit, except for calendars.
	one string

	bucket   bucket
	window   int64       // of a fixed window or a sliding counter
	calendar algo.Window // the windows, with a limit of 1, to count them
}

// lawOf is the law of a limit.
func lawOf(l weir.Limit) (*law, error) { return limits.Made(l, inside.MadeByRedis, newLaw) }

// newLaw returns an *[weir.OptionError] for a limit that is wrong, or that the script could not count exactly.
func newLaw(l weir.Limit) (*law, error) {
	of, err := limits.Law(l)
	if err != nil {
		return nil, err
	}
	w := &law{Law: of, unit: microsecond}
	var header []byte
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		w.code, w.sent = codeBucket, 2
		if w.bucket, err = newBucket(l.Rate(), l.Permits()); err != nil {
			return nil, err
		}
		b := &w.bucket
		header = numbers(nil, b.per, l.Permits(), b.num)
	case weir.AlgorithmConcurrency:
		w.code, w.sent = codeConcurrency, 1
		header = numbers(nil, l.Permits())
	case weir.AlgorithmCalendarWindow:
		w.code, w.sent = codeCalendar, 2
		if w.calendar, err = algo.NewCalendarWindow(1, l.Calendar()); err != nil {
			return nil, fmt.Errorf("weir: limit %v: %w", l, err)
		}
		name := l.Calendar().String()
		if len(name) > 200 {
			return nil, &weir.OptionError{
				Option: "Limit.Calendar", Value: fmt.Sprintf("%.40q", name), Accepted: "at most 200 bytes long in words",
			}
		}
		header = append(append(numbers(nil, l.Permits()), byte(len(name))), name...)
	default:
		if header, err = w.windows(l); err != nil {
			return nil, err
		}
	}
	w.head = string(append(append([]byte{byte(len(header) + 1), w.code}, header...), 0))
	if w.code != codeCalendar {
		w.one = w.argument(nil, 1)
	}
	return w, nil
}

// windows is newLaw for windows of the same length, which its law counts in microseconds. It returns the header.
func (w *law) windows(l weir.Limit) (header []byte, err error) {
	period := int64(l.Rate().Period)
	if period%microsecond != 0 {
		return nil, &weir.OptionError{
			Option: "Limit.Rate.Period", Value: l.Rate().Period.String(),
			Accepted: "a whole number of microseconds, which are the unit of the store",
		}
	}
	w.window, w.unit = period/microsecond, 1
	header = numbers(nil, l.Permits(), w.window)
	n, window := l.Permits(), time.Duration(w.window)
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow:
		a, err := algo.NewFixedWindow(n, window, 0)
		w.Law, w.code, w.sent = a.Law(), codeFixed, 3
		return header, err
	case weir.AlgorithmSlidingCounter:
		a, err := algo.NewSlidingCounter(n, window, 0)
		w.Law, w.code, w.sent = a.Law(), codeCounter, 3
		return header, err
	default: // weir.AlgorithmSlidingWindow
		if int64(l.Segments()) > w.window {
			return nil, &weir.OptionError{
				Option: "Limit.Segments", Value: fmt.Sprint(l.Segments()),
				Accepted: fmt.Sprintf("at most 1 per microsecond of the window, here %d", w.window),
			}
		}
		a, err := algo.NewSlidingWindow(n, window, l.Segments(), 0)
		w.Law, w.code = a.Law(), codeSliding
		return numbers(header, int64(l.Segments())), err
	}
}

// state makes the state in a reply one of the law. That of a bucket is at the time that counts for the record.
func (w *law) state(words []uint64, r *reader, at int64) {
	clear(words)
	sent := w.sent
	if w.code == codeSliding {
		sent = int(r.byte())
	}
	for i := range min(sent, len(words)) {
		words[i] = uint64(r.number())
	}
	switch w.code {
	case codeBucket:
		ahead, part := w.bucket.finer(span{int64(words[0]), int64(words[1])})
		words[0], words[1], words[2] = uint64(at*microsecond), uint64(ahead), uint64(part)
	case codeFixed, codeCounter:
		words[0] = uint64(int64(words[0]) / w.window)
	case codeCalendar:
		words[0] *= uint64(microsecond)
	}
}

// argument is the argument for n permits; n < 0 is what cannot be allowed. Of a calendar it lacks the edges.
func (w *law) argument(buf []byte, n int64) string {
	if n == 1 && w.one != "" {
		return w.one
	}
	return string(w.appendArgument(buf, n))
}

func (w *law) appendArgument(buf []byte, n int64) []byte {
	buf = append(buf, w.head...)
	if n > w.Limit() {
		n = -1
	}
	buf = w.appendNumber(buf, n)
	if w.code == codeBucket {
		cost := w.bucket.cost(min(max(n, 1), w.Limit()))
		buf = numbers(buf, cost.us, cost.part)
	}
	return buf
}

// counted is the argument for n permits of which only the number counts, which may be more than the limit.
func (w *law) counted(n int64) []byte {
	return w.appendNumber(append([]byte(nil), w.head...), n)
}

// appendNumber appends a number of permits, and of a bucket the time in which all of its permits are regained.
func (w *law) appendNumber(buf []byte, n int64) []byte {
	buf = numbers(buf, n)
	if w.code == codeBucket {
		buf = numbers(buf, w.bucket.full.us, w.bucket.full.part)
	}
	return buf
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
		passed = algo.MaxPermits - w.calendar.Refund(s, before, 0).Used
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

// bucket is the rate of a token bucket in microseconds, of which a permit may take less than one.
type bucket struct {
	num  int64 // num permits in per microseconds, lowest terms
	per  int64
	full span  // the time in which the burst is regained
	fine int64 // into how many parts package algo divides a nanosecond
}

func newBucket(r weir.Rate, burst int64) (bucket, error) {
	permits, period := reduced(r.Permits, int64(r.Period))
	num, per := reduced(permits*microsecond, period)
	if num > mostTerm || per > mostTerm {
		return bucket{}, &weir.OptionError{
			Option: "Limit.Rate", Value: r.String(),
			Accepted: fmt.Sprintf("a ratio of numbers up to 2^50 in permits per microsecond, here %d/%d", num, per),
		}
	}
	b := bucket{num: num, per: per, fine: permits}
	b.full = b.cost(burst)
	return b, nil
}

// reduced is a/b in its lowest terms.
func reduced(a, b int64) (num, den int64) {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x, b / x
}

// cost is the time that n permits take to be regained, for n up to the burst.
func (b *bucket) cost(n int64) span {
	hi, lo := bits.Mul64(uint64(n), uint64(b.per))
	quo, rem := bits.Div64(hi, lo, uint64(b.num))
	return span{int64(quo), int64(rem)}
}

// finer is a time in whole nanoseconds, and parts of one.
func (b *bucket) finer(x span) (ns, part int64) {
	parts := x.part * (microsecond * b.fine / b.num)
	return x.us*microsecond + parts/b.fine, parts % b.fine
}
