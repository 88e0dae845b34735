package policy

// recentRefusals are the refusals of a key in a window that slides, in a fixed number of words. They are kept as marks: the
// time of a refusal, and how many followed it until the next mark. With up to markCount refusals in the window each has a mark
// of its own, and the count is exact. When there are more, every other mark goes, and from then on a mark stands for twice as
// many.
//
// A mark counts with all that followed it while its own time is in the window. So what is counted is never more than there
// was, and less by fewer refusals than one mark stands for: with a Lockout of N refusals that is 1 up to N = 33, at most N/16
// beyond. The first N refusals of a key that has none are counted exactly, whatever N is.
//
// Times are kept in units of markUnit, modulo 2^32 of these, which is 59 hours: a mark that is in no window of up to 24 hours
// has gone by the time of the next refusal, and the caller clears marks when none was noted for longer than the window.
type recentRefusals []uint64

const (
	markCount   = 32
	recentWords = 1 + markCount/2

	markUnit = 50_000 // ns
)

// The first word of recentRefusals has how many marks there are, where the oldest is, of how many refusals each but the last
// is the first (a power of two, told by its exponent), and how many the last one stands for.
const (
	marksShift = 0
	headShift  = 8
	powerShift = 16
	sinceShift = 32
)

func (r recentRefusals) load() (marks, head, power int, since uint64) {
	w := r[0]
	return int(w >> marksShift & 0xff), int(w >> headShift & 0xff), int(w >> powerShift & 0xff), w >> sinceShift
}

func (r recentRefusals) save(marks, head, power int, since uint64) {
	r[0] = uint64(marks)<<marksShift | uint64(head)<<headShift | uint64(power)<<powerShift | since<<sinceShift
}

func (r recentRefusals) none() bool { return r[0]>>marksShift&0xff == 0 }

func (r recentRefusals) clear() { r[0] = 0 }

// mark returns the i-th mark of all places.
func (r recentRefusals) mark(i int) uint32 {
	i %= markCount
	return uint32(r[1+i/2] >> (i % 2 * 32))
}

func (r recentRefusals) setMark(i int, at uint32) {
	i %= markCount
	shift := i % 2 * 32
	r[1+i/2] = r[1+i/2]&^(0xffff_ffff<<shift) | uint64(at)<<shift
}

// markOf returns a time in units, rounded down.
func markOf(now int64) uint32 {
	units := now / markUnit
	if now%markUnit < 0 {
		units--
	}
	return uint32(units)
}

// passed returns how many marks are older than the window.
func (r recentRefusals) passed(marks, head int, now, within int64) int {
	at, window := markOf(now), uint32(within/markUnit)
	for i := range marks {
		if at-r.mark(head+i) <= window {
			return i
		}
	}
	return marks
}

// count returns how many refusals the marks in the window stand for.
func (r recentRefusals) count(now, within int64) uint64 {
	marks, head, power, since := r.load()
	marks -= r.passed(marks, head, now, within)
	if marks == 0 {
		return 0
	}
	return uint64(marks-1)<<power + since
}

// add notes a refusal.
func (r recentRefusals) add(now, within int64) {
	marks, head, power, since := r.load()
	passed := r.passed(marks, head, now, within)
	if marks, head = marks-passed, (head+passed)%markCount; marks == 0 {
		power, since = 0, 0
	}
	if marks == markCount && since == 1<<power {
		marks, since = r.thin(head, power, since)
		power++
	}
	if marks == 0 || since == 1<<power {
		r.setMark(head+marks, markOf(now))
		marks, since = marks+1, 0
	}
	r.save(marks, head, power, since+1)
}

// thin removes every other mark, from the second one on. What the last one stood for is added to the one before.
func (r recentRefusals) thin(head, power int, since uint64) (marks int, last uint64) {
	for i := 1; i < markCount/2; i++ {
		r.setMark(head+i, r.mark(head+2*i))
	}
	return markCount / 2, 1<<power + since
}
