package rlsapi

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// form is a reply that was encoded before. The next reply about the same limits differs from it in a few numbers alone, as long
// as they have the same lengths: these are its blanks.
type form struct {
	shape  shape
	reply  []byte // nil until the shape has come twice
	blanks []blank
}

const (
	// mostFormed is how many descriptors a reply may be about that is made by a form.
	mostFormed = 4
	// formCount is how many forms a call has. It is a power of 2.
	formCount = 8
)

// shape is all that a reply says, but for the numbers in it. It is compared with that of a form.
type shape struct {
	binding, length int
	parts           [mostFormed]shapePart
}

// shapePart is what a reply says of the limit of one descriptor.
type shapePart struct {
	policy  *policy.Policy
	rule    *policy.Rule
	match   *ratelimitconfig.Limit // nil if rules decide
	applied weir.Limit
	limit   int
	quota   int64
	lengths lengthsOf
}

// lengthsOf are the lengths of what remains and of the reset, as text and on the wire.
type lengthsOf struct{ remaining, remainingWire, reset, resetWire uint8 }

// blank is a place for a number.
type blank struct {
	kind  blankKind
	part  int
	start int
	end   int
}

type blankKind uint8

const (
	remainingWire blankKind = iota
	remainingText
	remainingFloat
	resetWire
	resetText
)

// numbers are those of a part. More than a uint32 are told in full, but not on the wire.
type numbers struct{ remaining, remainingWire, reset uint64 }

// forms make replies. They are those of one call, so that nothing is locked.
type forms struct {
	known []form // made when the first is needed

	fits    bool // the reply can be made by a form
	now     shape
	numbers [mostFormed]numbers
}

// formed reports whether replies can be made by forms: none of their fields depends on anything else.
func (o *Options) formed() bool {
	return len(o.LimitFields) == 0 && (o.Fields == 0 || o.Fields == ratelimitfields.RateLimit11 ||
		o.Fields == ratelimitfields.NoFields)
}

// mostRemaining is more than a header field tells.
const mostRemaining = 1_000_000_000_000_000

// look finds out the shape of the reply to a request that was allowed, each of whose descriptors has one limit. It is false for
// all others.
func (f *forms) look(c *call) bool {
	v := &c.charged.verdict
	n := len(c.asked)
	if c.over || n == 0 || n > mostFormed || n != len(v.Parts) || n != len(c.charged.requests) || !v.Allowed || v.Binding < 0 ||
		!c.service.formed {
		return false
	}
	f.now.binding, f.now.length = v.Binding, n
	for i := range n {
		if !f.lookAt(c, i) {
			return false
		}
	}
	return true
}

// lookAt is look for one descriptor.
func (f *forms) lookAt(c *call, i int) bool {
	p, s := &c.charged.verdict.Parts[i], &f.now.parts[i]
	d := &p.Decision
	if p.Request != i || !d.Allowed || d.Reason != weir.ReasonNone || p.Unasked || d.Remaining <= 0 ||
		d.Remaining >= mostRemaining || d.ResetAfter <= 0 || len(c.charged.verdict.Over(i)) > 0 {
		return false
	}
	if s.match = nil; len(c.matched) > 0 {
		m := &c.matched[i]
		if m.Outcome != ratelimitconfig.Limited || m.Overrides || m.Limit.Shadow || m.Limit.Quota ||
			m.Limit.RequestsPerUnit == 0 {
			return false
		}
		s.match = m.Limit
	}
	x := numbers{uint64(d.Remaining), clamped(d.Remaining), uint64((d.ResetAfter + time.Second - 1) / time.Second)}
	f.numbers[i] = x
	s.policy, s.rule, s.applied, s.limit, s.quota = p.Policy, p.Rule, p.Applied(), p.Limit, d.Limit
	s.lengths = lengthsOf{digits(x.remaining), wire(x.remainingWire), digits(x.reset), wire(x.reset)}
	return true
}

// place is the form that a shape would have.
func (f *forms) place() *form {
	if f.known == nil {
		f.known = make([]form, formCount)
	}
	first := &f.now.parts[0]
	l := first.lengths
	at := int(l.remaining) + 3*int(l.reset) + 2*int(l.remainingWire) + int(l.resetWire) + int(first.quota) + f.now.length
	return &f.known[at&(formCount-1)]
}

// fill makes the reply by a form, if there is one.
func (c *call) fill() bool {
	f := &c.forms
	if f.fits = f.look(c); !f.fits {
		return false
	}
	x := f.place()
	if x.reply == nil || !x.shape.is(&f.now) {
		return false
	}
	c.reply = x.fill(c.reply, &f.numbers)
	c.filled = true
	return true
}

// learn makes a form of a reply that was encoded, if one of its shape has come before. from is where the reply begins.
func (c *call) learn(from int) {
	f := &c.forms
	if !f.fits {
		return
	}
	x := f.place()
	if !x.shape.is(&f.now) {
		x.shape, x.reply = f.now, nil
		return
	}
	x.blanks = x.blanks[:0]
	if reply := string(c.reply[from:]); c.blanksOf(x, reply) {
		x.reply = []byte(reply)
	}
}

func (s *shape) is(other *shape) bool {
	if s.length != other.length || s.binding != other.binding {
		return false
	}
	for i := range s.length {
		if s.parts[i] != other.parts[i] {
			return false
		}
	}
	return true
}

// fill appends the reply with other numbers.
func (f *form) fill(to []byte, all *[mostFormed]numbers) []byte {
	at := len(to)
	to = append(to, f.reply...)
	for i := range f.blanks {
		x := &f.blanks[i]
		b, n := to[at+x.start:at+x.end], &all[x.part]
		switch x.kind {
		case remainingWire:
			putVarint(b, n.remainingWire)
		case remainingText:
			putDigits(b, n.remaining)
		case remainingFloat:
			binary.LittleEndian.PutUint64(b, math.Float64bits(float64(n.remaining)))
		case resetWire:
			putVarint(b, n.reset)
		case resetText:
			putDigits(b, n.reset)
		}
	}
	return to
}

// blanksOf finds the numbers of a reply. It is false if one cannot be found for sure.
func (c *call) blanksOf(x *form, reply string) bool {
	var f field
	part := 0
	for rest := reply; rest != ""; {
		var err error
		if rest, err = f.next(rest); err != nil {
			return false
		}
		end := len(reply) - len(rest)
		switch {
		case f.is(responseStatuses, protowire.BytesType):
			if !x.ofStatus(f.bytes, end, part) {
				return false
			}
			part++
		case f.is(responseHeaders, protowire.BytesType):
			if !c.blanksOfHeader(x, f.bytes, end) {
				return false
			}
		case f.is(responseMetadata, protowire.BytesType):
			const float = 8
			x.add(remainingFloat, x.shape.binding, end-float, end) // what remains of the limit that decides is told last
		}
	}
	return part == x.shape.length
}

func (f *form) add(kind blankKind, part, start, end int) {
	f.blanks = append(f.blanks, blank{kind, part, start, end})
}

// ofStatus finds the numbers of the status of a descriptor, which ends at a place of the reply.
func (f *form) ofStatus(status string, end, part int) bool {
	if part == f.shape.length {
		return false
	}
	lengths, found := f.shape.parts[part].lengths, 0
	var x field
	for rest := status; rest != ""; {
		var err error
		if rest, err = x.next(rest); err != nil {
			return false
		}
		at := end - len(rest)
		switch {
		case x.is(statusRemaining, protowire.VarintType):
			f.add(remainingWire, part, at-int(lengths.remainingWire), at)
			found++
		case x.is(statusReset, protowire.BytesType):
			f.add(resetWire, part, at-int(lengths.resetWire), at) // a Duration of whole seconds has no more behind
			found++
		}
	}
	return found == 2
}

// blanksOfHeader finds the numbers of a header field, which ends at a place of the reply. Only RateLimit has some.
func (c *call) blanksOfHeader(x *form, header string, end int) bool {
	var key, value field
	rest, err := key.next(header)
	if err != nil || key.bytes != fieldNames[1][1] {
		return err == nil
	}
	if rest, err = value.next(rest); err != nil || rest != "" {
		return false
	}
	// The text is taken apart from its end, which nothing in the name of a policy can be taken for.
	text := value.bytes
	from := end - len(text)
	cut := func(suffix string) (found bool) {
		text, found = strings.CutSuffix(text, suffix)
		return found
	}
	parts := c.charged.verdict.Parts
	var told [mostFormed]int
	order := told[:0]
	order = append(order, x.shape.binding)
	for i := range parts {
		if !c.isTold(order, i) {
			order = append(order, i)
		}
	}
	for i, part := range slices.Backward(order) {
		n := c.forms.numbers[part]
		if !cut(strconv.FormatUint(n.reset, 10)) {
			return false
		}
		x.add(resetText, part, from+len(text), from+len(text)+int(digits(n.reset)))
		if !cut(";t=") || !cut(strconv.FormatUint(n.remaining, 10)) {
			return false
		}
		x.add(remainingText, part, from+len(text), from+len(text)+int(digits(n.remaining)))
		if !cut(`;r=`) || !cut(`"`+parts[part].Decision.Policy+`"`) || i > 0 && !cut(", ") {
			return false
		}
	}
	return text == ""
}

// isTold reports whether a policy is told already by one of the parts: each is told once.
func (c *call) isTold(order []int, part int) bool {
	parts := c.charged.verdict.Parts
	for _, i := range order {
		if parts[i].Decision.Policy == parts[part].Decision.Policy {
			return true
		}
	}
	return false
}

// wire is how many bytes a number has on the wire.
func wire(n uint64) uint8 { return uint8(protowire.SizeVarint(n)) }

func putVarint(b []byte, n uint64) {
	last := len(b) - 1
	for i := range last {
		b[i] = byte(n) | 0x80
		n >>= 7
	}
	b[last] = byte(n)
}

// digits is how many digits a number has that is more than 0 and fits into 63 bits.
func digits(n uint64) uint8 {
	most := uint8(bits.Len64(n) * 1233 >> 12) // log10(2) is 1233/4096: as many, or one less
	if n >= powers[most] {
		most++
	}
	return most
}

var powers = func() (p [20]uint64) {
	n := uint64(1)
	for i := range p {
		p[i] = n
		n *= 10
	}
	return p
}()

func putDigits(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}
