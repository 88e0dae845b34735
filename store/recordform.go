package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

// recordVersion is the first byte of the binary form of a record. A form that is not that of an earlier version has another
// one.
const recordVersion = 2

// errMalformed says that bytes are not the binary form of a record.
var errMalformed = errors.New("weir: not a record of this version")

// The binary form of a record: the version, the limit with its length before it, the time, the words of the state, the
// reservations and the requests that were allowed, each with their number before them, what is known of loans, and of clocks.
// Numbers are variable-length integers; what has the wrong order, lies out of range, or is longer than it needs to be is refused.

// encode is the binary form.
func (r *record) encode() []byte {
	b := make([]byte, 0, 48+len(r.terms.text)+4*len(r.state)+64*len(r.held)+48*len(r.done))
	b = append(b, recordVersion)
	b = appendText(b, r.terms.text)
	b = binary.AppendVarint(b, r.at)
	for _, w := range r.state {
		b = binary.AppendVarint(b, int64(w))
	}
	b = binary.AppendUvarint(b, uint64(len(r.held)))
	for i := range r.held {
		h := &r.held[i]
		b = appendText(b, h.id)
		b = appendText(b, h.of)
		for _, v := range [...]int64{h.expires, h.n, h.mark.At, h.mark.Part, h.mark.Taken, h.rate.Permits, int64(h.rate.Period)} {
			b = binary.AppendVarint(b, v)
		}
		b = appendBool(b, h.void)
	}
	b = binary.AppendUvarint(b, uint64(len(r.done)))
	for i := range r.done {
		b = appendText(b, r.done[i].id)
		b = binary.AppendVarint(b, r.done[i].until)
		b = binary.AppendVarint(b, r.done[i].left)
	}
	b = binary.AppendVarint(b, r.sealed)
	b = binary.AppendVarint(b, r.unsealed)
	b = binary.AppendUvarint(b, uint64(len(r.clocks.ahead)))
	for _, by := range r.clocks.ahead {
		b = binary.AppendVarint(b, by)
	}
	return append(b, byte(r.clocks.back))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendLimit appends the binary form of a limit whose defaults are filled in.
func appendLimit(b []byte, l weir.Limit) []byte {
	b = append(b, byte(l.Algorithm()))
	b = binary.AppendVarint(b, l.Rate().Permits)
	b = binary.AppendVarint(b, int64(l.Rate().Period))
	b = binary.AppendVarint(b, limits.Own(l))
	b = binary.AppendVarint(b, int64(l.Segments()))
	if l.Algorithm() != weir.AlgorithmCalendarWindow {
		return b
	}
	c, zone := l.Calendar(), "UTC"
	if c.Zone != nil {
		zone = c.Zone.String()
	}
	b = append(b, byte(c.Unit))
	b = appendText(b, zone)
	for _, v := range [...]int{int(c.Month), c.Day, c.Weekday, c.Hour, c.Minute} {
		b = binary.AppendVarint(b, int64(v))
	}
	return b
}

// decodeRecord reads the binary form, which may be that of anything. If the limit in it is that of want, which may be nil,
// it is taken from there.
func decodeRecord(b []byte, want *terms) (*record, error) {
	d := decoder{rest: b}
	if d.byte() != recordVersion || d.failed {
		return nil, errMalformed
	}
	r := new(record)
	text := d.text(mostLimitBytes)
	if d.failed {
		return nil, errMalformed
	}
	if want != nil && want.text == text {
		r.terms = want
	} else if t, ok := readTerms(text); ok {
		r.terms = t
	} else {
		return nil, fmt.Errorf("%w: its limit cannot be used", errMalformed)
	}
	r.at = d.time()
	r.state = make([]uint64, r.terms.law.Words())
	for i := range r.state {
		r.state[i] = uint64(d.int())
	}
	if d.failed || !r.terms.law.Valid(r.state) {
		return nil, errMalformed
	}
	d.holds(r)
	d.dones(r)
	r.sealed, r.unsealed = d.time(), d.int()
	for range d.count(mostClocks, 1) {
		r.clocks.ahead = append(r.clocks.ahead, d.int())
	}
	r.clocks.back = int64(d.byte())
	if d.failed || len(d.rest) > 0 || !r.clocks.valid() || !r.consistent() {
		return nil, errMalformed
	}
	return r, nil
}

// consistent reports whether what is out is what is reserved: nothing else gives permits of a concurrency limit back.
func (r *record) consistent() bool {
	if r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
		return true
	}
	out := int64(0)
	for i := range r.held {
		if h := &r.held[i]; !h.void {
			out += h.n
		}
	}
	return out == int64(r.state[0])
}

const (
	mostLimitBytes = 256
	// mostNameBytes is the longest name of a record: see recordName.
	mostNameBytes = 6 + MostPolicyBytes + MostKeyBytes
)

func decodeLimit(text string) (l weir.Limit, ok bool) {
	d := decoder{rest: []byte(text)}
	algorithm := weir.Algorithm(d.byte())
	rate := weir.Rate{Permits: d.int(), Period: time.Duration(d.int())}
	permits, segments := d.int(), int(d.int())
	var c algo.Calendar
	if algorithm == weir.AlgorithmCalendarWindow {
		c.Unit = algo.CalendarUnit(d.byte())
		zone := d.text(mostLimitBytes)
		c.Month, c.Day, c.Weekday, c.Hour, c.Minute = time.Month(d.int()), int(d.int()), int(d.int()), int(d.int()), int(d.int())
		if zone != "UTC" && !d.failed {
			z, err := time.LoadLocation(zone)
			if err != nil || z == time.Local { //nolint:gosmopolitan // it is refused
				return l, false
			}
			c.Zone = z
		}
	}
	l, ok = limits.Of(algorithm, rate, permits, segments, c)
	return l, ok && !d.failed && len(d.rest) == 0
}

// validTime reports whether a time is one that a clock may show.
func validTime(t int64) bool { return -latest <= t && t <= latest }

// validPermits reports whether a count of permits is one that a limit can reach, debt included.
func validPermits(n int64) bool { return n >= 0 && n <= 1<<52 }

// latest is the latest time that a clock may show.
const latest = 1 << 62

// never is a time that does not come.
const never = math.MaxInt64

// decoder reads from the front of rest. Once it has failed, it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) byte() byte {
	if d.failed || len(d.rest) == 0 {
		d.failed = true
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.failed || n <= 0 || n > 1 && d.rest[n-1] == 0 { // longer than it needs to be
		d.failed = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int() int64 {
	u := d.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) time() int64 {
	t := d.int()
	d.failed = d.failed || !validTime(t)
	return t
}

func (d *decoder) permits() int64 {
	n := d.int()
	d.failed = d.failed || !validPermits(n)
	return n
}

func (d *decoder) text(most int) string {
	n := d.uint()
	if d.failed || n > uint64(most) || n > uint64(len(d.rest)) {
		d.failed = true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// count is a number of things that take at least size bytes each.
func (d *decoder) count(most, size int) int {
	n := d.uint()
	if d.failed || n > uint64(most) || n > uint64(len(d.rest)/size) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) holds(r *record) {
	n := d.count(MostReservations, 11)
	if n == 0 {
		return
	}
	r.held = make([]hold, n)
	before := int64(math.MinInt64)
	for i := range r.held {
		h := &r.held[i]
		h.id, h.of = d.text(MostIDBytes), d.text(mostNameBytes)
		h.expires, h.n = d.time(), d.permits()
		h.mark = algo.Mark{At: d.int(), Part: d.int(), Taken: d.int()}
		h.rate = weir.Rate{Permits: d.int(), Period: time.Duration(d.int())}
		if _, ok := named(h.of); h.of != "" && !ok {
			d.failed = true
		}
		void := d.byte()
		h.void = void == 1
		if d.failed || h.id == "" || void > 1 || h.expires < before ||
			h.rate != (weir.Rate{}) && (r.terms.bucket == nil || h.rate.Check() != nil) {
			d.failed = true
			return
		}
		before = h.expires
	}
}

// mostDone is how many requests a record remembers as allowed.
const mostDone = MostReservations

func (d *decoder) dones(r *record) {
	n := d.count(mostDone, 4)
	if n == 0 {
		return
	}
	r.done = make([]done, n)
	before := ""
	for i := range r.done {
		r.done[i] = done{d.text(MostIDBytes), d.time(), d.int()}
		if d.failed || r.done[i].left < 1 || r.done[i].left >= MostCharges || r.done[i].id <= before {
			d.failed = true
			return
		}
		before = r.done[i].id
	}
}
