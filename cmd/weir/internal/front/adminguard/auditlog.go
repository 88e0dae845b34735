package adminguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

const (
	// MostAudited is how many entries are kept in memory.
	MostAudited = 1000
	// mostLogins is how many of them failed logins can be while they push out changes: any client can cause those.
	mostLogins = 200
	// longestGuess is how many bytes of the detail of a failed login are kept.
	longestGuess = 128
)

// Actions that are no change.
const (
	AuditStart       = "start"        // the log begins
	AuditStop        = "stop"         // the log ends
	AuditLoginFailed = "login-failed" // a wrong token was shown
)

// AuditOK is the result of what was done.
const AuditOK = "ok"

// AuditBegun is the result of what is about to be done: it is in the file before, and what became of it after.
const AuditBegun = "begun"

// AuditOptions configure an [AuditLog].
type AuditOptions struct {
	// Path is the file. Default: "", none: then there are those in memory alone.
	Path string
	// Megabytes is how large the file may become before another one is begun, and Files how many older ones are kept, 0 for
	// all. Required with Path.
	Megabytes, Files int
	// Logger logs each entry at level Info, and at level Error that one could not be written. Required.
	Logger *slog.Logger
	// Clock limits how many failed logins are kept. Default: nil, that of the process.
	Clock weir.Clock
}

// AuditLog is an audit log. It is safe for concurrent use.
type AuditLog struct {
	log    *slog.Logger
	path   string
	logins *weir.Limiter

	mu      sync.Mutex
	file    *rotated   // nil if there is none
	kept    []numbered // the last one last
	guesses int        // failed logins among them
	count   uint64     // of all entries
	broken  error      // why the last one could not be written
	omitted int        // failed logins
	changes uint64     // entries that are no failed logins
	errors  uint64     // how often an entry could not be written
}

// numbered is an entry with its number, from 1.
type numbered struct {
	number uint64
	entry  operator.AuditEntry
}

// Failing reports whether the file could not be written when that was tried last: so nothing can be changed.
func (l *AuditLog) Failing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken != nil
}

// Counts are how many changes were noted, and how often an entry could not be written to the file: each try counts.
func (l *AuditLog) Counts() (changes, unwritten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes, l.errors
}

// Failed logins that are kept: so many at once, and one in each second. Others are counted.
const loginBurst = 100

// OpenAudit opens a log. The error says why the file cannot be written.
func OpenAudit(o AuditOptions) (*AuditLog, error) {
	logins, err := weir.New(weir.TokenBucket(weir.PerSecond(1), loginBurst), weir.Options{Clock: o.Clock})
	if err != nil {
		return nil, fmt.Errorf("weir: audit log: %w", err)
	}
	l := &AuditLog{log: o.Logger, path: o.Path, logins: logins}
	if o.Path == "" {
		return l, nil
	}
	l.file = &rotated{path: o.Path, max: int64(o.Megabytes) << 20, kept: o.Files}
	if err = l.file.open(); err != nil {
		return nil, fmt.Errorf("weir: audit log: %w", err)
	}
	l.file.removeOld() // fewer may be kept than before
	start := operator.AuditEntry{Time: time.Now().UTC(), Who: "server", Action: AuditStart, Result: AuditOK}
	if err = l.write(&start); err != nil {
		_ = l.file.Close() // nothing was written
		return nil, fmt.Errorf("weir: audit log: %w", err)
	}
	return l, nil
}

// write appends an entry to the file, and has the system put it on the disk.
func (l *AuditLog) write(e *operator.AuditEntry) error {
	if l.file == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil { // strings and times can always be encoded
		return fmt.Errorf("weir: audit log: %w", err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// Begin writes a change to the file, with the result [AuditBegun], before it is made; [AuditLog.Add] adds its result. If Begin
// returns an error, the file cannot be written, and the change must not be made: it would leave no trace.
func (l *AuditLog) Begin(e operator.AuditEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	e.Time, e.Result = time.Now().UTC(), AuditBegun
	return l.append(&e)
}

// Change has do make a change that by asks for, between an entry that says so and one that says what became of it: [AuditOK] or
// the problem, unless do has set another result. If the log cannot be written, that is the problem, and do is not called. Its key
// is not spelled yet. A nil log notes nothing.
func (l *AuditLog) Change(
	by Caller, e operator.AuditEntry, do func(e *operator.AuditEntry) *answer.Problem,
) *answer.Problem {
	if l == nil {
		return do(&e)
	}
	e.Who, e.From, e.Key = by.Who, by.From, operator.SpellKey(e.Key)
	if err := l.Begin(e); err != nil {
		return answer.PlainProblem(http.StatusServiceUnavailable,
			"nothing can be changed, as the audit log cannot be written: %s",
			strings.TrimPrefix(err.Error(), "weir: "))
	}
	p := do(&e)
	switch {
	case p != nil:
		e.Result = p.Detail
	case e.Result == "":
		e.Result = AuditOK
	}
	l.Add(e)
	return p
}

// append writes an entry to the file. If entries before it are not there, as they could not be written or the file was taken
// away, it is first said there why.
func (l *AuditLog) append(e *operator.AuditEntry) error {
	if l.file == nil {
		return nil
	}
	before, gap := l.broken, ""
	if before != nil {
		gap = "entries are missing"
	}
	if l.file.taken() {
		gap = "the file was removed, renamed or shortened"
		l.log.Warn("the audit log was removed, renamed or shortened: it goes on in a new file", "path", l.path)
	}
	if l.broken = nil; gap != "" {
		l.broken = l.write(&operator.AuditEntry{
			Time: time.Now().UTC(), Who: "server", Action: AuditStart, Result: AuditOK, Detail: gap,
		})
	}
	if l.broken == nil {
		l.broken = l.write(e)
	}
	if l.broken == nil {
		return nil
	}
	l.errors++
	if before == nil { // or it was said
		l.log.Error("the audit log cannot be written, nothing can be changed until it can", "error", l.broken.Error())
	}
	return l.broken
}

// Add adds an entry, with the time of now if it has none.
func (l *AuditLog) Add(e operator.AuditEntry) {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Action == AuditLoginFailed {
		// The client chooses its length.
		if len(e.Detail) > longestGuess {
			e.Detail = strings.ToValidUTF8(e.Detail[:longestGuess], "") + "..."
		}
		if !l.logins.Allow() {
			l.omitted++
			return
		}
		if l.omitted > 0 {
			e.Detail = fmt.Sprintf("%s (%d more before it)", e.Detail, l.omitted)
			l.omitted = 0
		}
	}
	if e.Action != AuditLoginFailed {
		l.changes++
	}
	l.keep(e)
	l.log.Info("audit", "who", e.Who, "from", e.From, "action", e.Action, "policy", e.Policy, "key", e.Key, "detail", e.Detail,
		"reason", e.Reason, "result", e.Result)
	_ = l.append(&e) // which has told the log of the server
}

// keep keeps an entry in memory, in the place of the oldest one. Of many failed logins it is the oldest of them.
func (l *AuditLog) keep(e operator.AuditEntry) {
	isGuess := func(n numbered) bool { return n.entry.Action == AuditLoginFailed }
	if len(l.kept) == MostAudited {
		oldest := 0
		if l.guesses >= mostLogins {
			oldest = slices.IndexFunc(l.kept, isGuess)
		}
		if isGuess(l.kept[oldest]) {
			l.guesses--
		}
		l.kept = slices.Delete(l.kept, oldest, oldest+1)
	}
	l.count++
	l.kept = append(l.kept, numbered{l.count, e})
	if e.Action == AuditLoginFailed {
		l.guesses++
	}
}

// Last are the last n entries of those in memory, the last first.
func (l *AuditLog) Last(n int) []operator.AuditEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.kept[len(l.kept)-min(max(n, 0), len(l.kept)):]
	all := make([]operator.AuditEntry, 0, len(last))
	for i := range slices.Backward(last) {
		all = append(all, last[i].entry)
	}
	return all
}

// Since are the entries after the first so many, as far as they are still in memory, the first first, and how many there are in
// all now.
func (l *AuditLog) Since(count uint64) (entries []operator.AuditEntry, now uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := len(l.kept)
	for from > 0 && l.kept[from-1].number > count {
		from--
	}
	for i := range l.kept[from:] {
		entries = append(entries, l.kept[from+i].entry)
	}
	return entries, l.count
}

// Close ends the log. Nothing must be added any more.
func (l *AuditLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.write(&operator.AuditEntry{Time: time.Now().UTC(), Who: "server", Action: AuditStop, Result: AuditOK})
	err = errors.Join(err, l.file.Close())
	l.file = nil
	return err
}
