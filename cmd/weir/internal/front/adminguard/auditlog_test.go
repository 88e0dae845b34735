package adminguard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/manualclock"
)

func open(t *testing.T, o adminguard.AuditOptions) *adminguard.AuditLog {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := adminguard.OpenAudit(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// lines are the entries of a file.
func lines(t *testing.T, path string) (all []operator.AuditEntry) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e operator.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// TestEntries are appended to the file, one line each whatever is in them, kept in memory, and logged.
func TestEntries(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "audit.log"), new(bytes.Buffer)
	if err := os.WriteFile(path, []byte(`{"action":"before"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, adminguard.AuditOptions{Path: path, Megabytes: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
	entry := operator.AuditEntry{
		Who: "alice", From: "192.0.2.1", Action: "unlock", Policy: "login", Key: "a\nb\u2028", Reason: `{"x"}`, Result: adminguard.AuditOK,
	}
	l.Add(entry)
	if last := l.Last(5); len(last) != 1 || last[0].Key != entry.Key || time.Since(last[0].Time) > time.Hour {
		t.Errorf("%+v", last)
	}
	if !strings.Contains(log.String(), `msg=audit who=alice from=192.0.2.1 action=unlock`) {
		t.Error(log)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, path)
	if len(got) != 4 || got[0].Action != "before" || got[1].Action != "start" || got[2].Key != entry.Key || got[3].Action != "stop" {
		t.Errorf("%+v", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestRotation begins a new file when one is large, and loses nothing.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l := open(t, adminguard.AuditOptions{Path: filepath.Join(dir, "audit.log"), Megabytes: 1, Files: 5})
	const n = 30
	for i := range n {
		l.Add(operator.AuditEntry{Action: "override", Key: fmt.Sprint(i), Reason: strings.Repeat("r", 50_000)})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q %v", files, err)
	}
	seen := map[string]bool{}
	for _, path := range files {
		for _, e := range lines(t, path) {
			seen[e.Key] = true
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() > 1<<20 {
			t.Errorf("%s: %v %d", path, info.Mode(), info.Size())
		}
	}
	if len(seen) != n+1 { // start and stop have no key
		t.Errorf("%d keys", len(seen))
	}
}

// TestOldFilesAreRemoved: of those put aside as many are kept as was said, the last ones. What is called alike is not touched.
func TestOldFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "audit-2001.log")
	if err := os.WriteFile(other, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, adminguard.AuditOptions{Path: filepath.Join(dir, "audit.log"), Megabytes: 1, Files: 2})
	const n = 18 // two fit in a file
	for i := range n {
		l.Add(operator.AuditEntry{Action: "override", Key: fmt.Sprint(i), Reason: strings.Repeat("r", 400_000)})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%q %v", files, err)
	}
	if _, err = os.Stat(other); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, path := range files {
		for _, e := range lines(t, path) {
			seen[e.Key] = true
		}
	}
	for i := n - 5; i < n; i++ {
		if !seen[fmt.Sprint(i)] {
			t.Errorf("the entry %d is gone: there are %v", i, seen)
		}
	}
	if err = l.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, adminguard.AuditOptions{Path: filepath.Join(dir, "audit.log"), Megabytes: 1, Files: 1})
	if files, err = filepath.Glob(filepath.Join(dir, "*.log")); err != nil || len(files) != 3 {
		t.Errorf("%q %v", files, err)
	}
}

// TestOldFilesOfAnotherClock: what was put aside last is kept, also if the clock has gone back since another file was.
func TestOldFilesOfAnotherClock(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "audit-2099-01-01T00-00-00.000000000.log"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, adminguard.AuditOptions{Path: filepath.Join(dir, "audit.log"), Megabytes: 1, Files: 1})
	for i := range 6 { // two fit in a file
		l.Add(operator.AuditEntry{Action: "override", Key: fmt.Sprint(i), Reason: strings.Repeat("r", 400_000)})
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q %v", files, err)
	}
	var keys []string
	for _, e := range lines(t, files[0]) {
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, []string{"2", "3"}) {
		t.Errorf("%s has the entries %q", files[0], keys)
	}
}

// TestMemory has the last 1000 entries.
func TestMemory(t *testing.T) {
	l := open(t, adminguard.AuditOptions{})
	const n = 1500
	for i := range n {
		l.Add(operator.AuditEntry{Action: "override", Key: fmt.Sprint(i)})
	}
	if last := l.Last(5000); len(last) != adminguard.MostAudited || last[0].Key != fmt.Sprint(n-1) {
		t.Errorf("%d in memory", len(last))
	}
	since, now := l.Since(n - 2)
	if len(since) != 2 || now != n || since[0].Key != fmt.Sprint(n-2) {
		t.Errorf("%d %d", len(since), now)
	}
	if since, _ = l.Since(0); len(since) != adminguard.MostAudited || since[0].Key != fmt.Sprint(n-adminguard.MostAudited) {
		t.Errorf("%d", len(since))
	}
}

// TestFileThatCannotBeWritten: the log does not open.
func TestFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                 "is not a regular file",
		filepath.Join(dir, "none", "a.log"): "no such file or directory",
		os.DevNull:                          "is not a regular file",
	} {
		if _, err := adminguard.OpenAudit(adminguard.AuditOptions{Path: path, Megabytes: 1, Logger: slog.New(slog.DiscardHandler)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestNothingIsChangedUnnoticed: what is about to be done is written before it is, and must not be done when that cannot be, until
// it can.
func TestNothingIsChangedUnnoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.log")
	l := open(t, adminguard.AuditOptions{Path: path, Megabytes: 1})
	large := operator.AuditEntry{Action: "unlock", Detail: strings.Repeat("d", 400_000), Result: adminguard.AuditOK}
	if err := l.Begin(large); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, path); len(got) != 2 || got[1].Action != "unlock" || got[1].Result != adminguard.AuditBegun || got[1].Time.IsZero() {
		t.Errorf("%.300v", got)
	}
	l.Add(large)
	// A file in the place of the directory: the next file cannot be begun.
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Begin(large); err == nil || !strings.Contains(err.Error(), "audit.log") {
			t.Errorf("%v", err)
		}
	}
	l.Add(large) // a change that had begun before
	if changes, unwritten := l.Counts(); changes != 2 || unwritten != 3 || len(l.Last(5)) != 2 || !l.Failing() {
		t.Errorf("%d changes, not written %d times, %d in memory", changes, unwritten, len(l.Last(5)))
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(large); err != nil {
		t.Error(err)
	}
	if got := lines(t, path); len(got) != 2 || got[0].Detail != "entries are missing" || got[1].Result != adminguard.AuditBegun || l.Failing() {
		t.Errorf("%.300v", got)
	}
}

// TestPartOfALineSpoilsNoOther: a file that ends with a part of a line, as after a kill on a full disk, goes on with whole lines.
func TestPartOfALineSpoilsNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for name, before := range map[string]string{"a part": `{"time":"2026-1`, "a line": "{}\n", "nothing": ""} {
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, adminguard.AuditOptions{Path: path, Megabytes: 1})
		l.Add(operator.AuditEntry{Action: "unlock"})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		after, own := strings.CutPrefix(string(text), before)
		if !own {
			t.Errorf("%s: it is gone: %q", name, text)
		}
		if name == "a part" {
			if after, own = strings.CutPrefix(after, "\n"); !own {
				t.Errorf("%s: the first line goes on with it: %q", name, text)
			}
		}
		all := strings.Split(strings.TrimSuffix(after, "\n"), "\n")
		for _, line := range all {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: %q is no line", name, line)
			}
		}
		if len(all) != 3 {
			t.Errorf("%s: %d lines: %q", name, len(all), text)
		}
	}
}

// TestLogIsWrittenAgain: what is noted, such as a failed login, ends a failure as a change does, and tells of it. Of each failure
// the log of the server has one line.
func TestLogIsWrittenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "audit.log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	l := open(t, adminguard.AuditOptions{Path: path, Megabytes: 1, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	large := operator.AuditEntry{Action: adminguard.AuditLoginFailed, Who: strings.Repeat("d", 600_000)}
	l.Add(large)
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		l.Add(large)
	}
	if _, unwritten := l.Counts(); unwritten != 5 || !l.Failing() || strings.Count(said.String(), "cannot be written") != 1 {
		t.Errorf("not written %d times, failing %v", unwritten, l.Failing())
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	l.Add(operator.AuditEntry{Action: adminguard.AuditLoginFailed})
	if got := lines(t, path); len(got) != 2 || got[0].Detail != "entries are missing" || l.Failing() {
		t.Errorf("%.300v", got)
	}
}

// TestLogThatWasTakenAwayIsBegunAgain: the entries after that are in a file at the path, which says that there were others before.
func TestLogThatWasTakenAwayIsBegunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		take func(path string) error
		left []string // details
	}{
		"removed": {os.Remove, nil},
		"renamed": {func(path string) error { return os.Rename(path, path+".1") }, nil},
		"replaced": {func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, []byte(`{"detail":"other"}`+"\n"), 0o600))
		}, []string{"other"}},
		"shortened": {func(path string) error { return os.Truncate(path, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path, said := filepath.Join(t.TempDir(), "audit.log"), new(bytes.Buffer)
			l := open(t, adminguard.AuditOptions{Path: path, Megabytes: 1, Logger: slog.New(slog.NewTextHandler(said, nil))})
			l.Add(operator.AuditEntry{Detail: "first"})
			if err := c.take(path); err != nil {
				if runtime.GOOS == "windows" {
					t.Log(err) // a file that is open cannot be taken away
					return
				}
				t.Fatal(err)
			}
			if err := l.Begin(operator.AuditEntry{Detail: "second"}); err != nil {
				t.Fatal(err)
			}
			l.Add(operator.AuditEntry{Detail: "second"})
			var got []string
			for _, e := range lines(t, path) {
				got = append(got, e.Detail)
			}
			want := slices.Concat(c.left, []string{"the file was removed, renamed or shortened", "second", "second"})
			if !slices.Equal(got, want) || strings.Count(said.String(), "level=WARN") != 1 || l.Failing() {
				t.Errorf("%q, want %q; the log of the server: %s", got, want, said)
			}
		})
	}
}

// TestFailedLogins: a client that guesses tokens does not fill the disk, but the log has how often it did.
func TestFailedLogins(t *testing.T) {
	clock := manualclock.New(0)
	l := open(t, adminguard.AuditOptions{Clock: clock})
	for range 150 {
		l.Add(operator.AuditEntry{Action: adminguard.AuditLoginFailed, Detail: "/v1/status"})
	}
	if last := l.Last(1000); len(last) != 100 {
		t.Errorf("%d entries", len(last))
	}
	clock.Advance(time.Second)
	l.Add(operator.AuditEntry{Action: adminguard.AuditLoginFailed, Detail: "/v1/status"})
	if last := l.Last(1); last[0].Detail != "/v1/status (50 more before it)" {
		t.Errorf("%+v", last)
	}
	if changes, unwritten := l.Counts(); changes != 0 || unwritten != 0 {
		t.Errorf("%d %d", changes, unwritten)
	}
}

// TestGuessingForgetsNoChanges: failed logins, which any client can cause, do not push changes out of the memory.
func TestGuessingForgetsNoChanges(t *testing.T) {
	clock := manualclock.New(0)
	l := open(t, adminguard.AuditOptions{Clock: clock})
	for range 700 {
		l.Add(operator.AuditEntry{Action: "override"})
	}
	for range 3 * adminguard.MostAudited {
		l.Add(operator.AuditEntry{Action: adminguard.AuditLoginFailed, Detail: strings.Repeat("<", 16<<10)})
		clock.Advance(time.Second)
	}
	changes := 0
	for _, e := range l.Last(adminguard.MostAudited) {
		if e.Action == "override" {
			changes++
		}
	}
	if detail := l.Last(1)[0].Detail; len(detail) > 200 {
		t.Errorf("a failed login takes %d bytes", len(detail))
	}
	if changes != 700 {
		t.Errorf("%d of 700 changes are left", changes)
	}
	for range adminguard.MostAudited {
		l.Add(operator.AuditEntry{Action: "override"})
	}
	if all, count := l.Since(0); len(all) != adminguard.MostAudited || count != 700+4*adminguard.MostAudited {
		t.Errorf("%d entries of %d", len(all), count)
	}
}
