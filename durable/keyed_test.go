package durable_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/store"
)

func openKeyed(t *testing.T, path string, limit weir.Limit, o durable.KeyedOptions) *durable.Keyed {
	t.Helper()
	k, err := durable.OpenKeyed(path, limit, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func year(permits int64) weir.Limit {
	return weir.CalendarWindow(permits, algo.Calendar{Unit: algo.CalendarYear})
}

// TestKeyedSurvivesRestart: what was used stays used for each key, under another name and a larger or smaller limit as well.
func TestKeyedSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	k := openKeyed(t, path, year(10), durable.KeyedOptions{Name: "year"})
	if d := k.Take("acme", 7); !d.Allowed || d.Remaining != 3 || d.Limit != 10 || d.Policy != "year" {
		t.Errorf("the first take: %+v", d)
	}
	k.Take("umbrella", 1)
	for _, step := range []struct {
		limit weir.Limit
		name  string
		left  int64
	}{{year(10), "year", 3}, {year(10), "renamed", 3}, {year(12), "larger", 5}, {year(5), "smaller", 0}, {year(10), "back", 3}} {
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		k = openKeyed(t, path, step.limit, durable.KeyedOptions{Name: step.name})
		if d := k.Peek("acme", 0); d.Remaining != step.left || d.Policy != step.name || k.Limit() != step.limit {
			t.Errorf("%s: %+v, want %d left", step.name, d, step.left)
		}
		if d := k.Take("acme", step.left+1); d.Allowed || d.Policy != step.name {
			t.Errorf("%s: more than is left: %+v", step.name, d)
		}
	}
	for want := range 3 {
		if !k.Allow("acme") {
			t.Errorf("%d of 3 were allowed", want)
		}
	}
	if d := k.Take("acme", 1); d.Allowed || d.Reason != weir.ReasonLimited || d.RetryAfter <= 0 {
		t.Errorf("one too many: %+v", d)
	}
	if d := k.Peek("umbrella", 1); d.Remaining != 9 {
		t.Errorf("another key: %+v", d)
	}
}

// TestKeyedOfAnotherLimit: a file whose counts would not count is refused and left as it is.
func TestKeyedOfAnotherLimit(t *testing.T) {
	dir := t.TempDir()
	path, server := filepath.Join(dir, "quota"), filepath.Join(dir, "server")
	k := openKeyed(t, path, year(10), durable.KeyedOptions{})
	k.Allow("acme")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	f := must(durable.OpenFile(server, durable.FileOptions{}))
	n := must(durable.NewNode(durable.NodeOptions{Engine: f.Engine(), Address: "here"}))
	spectest.Acquire(t.Context(), n, spectest.Request{Policy: "tenant-month", Key: "acme", Limit: year(10), N: 1})
	if err := errors.Join(n.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	bucket := weir.TokenBucket(weir.PerSecond(1), 10)
	for _, c := range []struct {
		path  string
		limit weir.Limit
		want  []string
	}{
		{path, bucket, []string{path, year(10).String(), bucket.String(), "begin anew"}},
		{server, year(10), []string{server, `"tenant-month"`}},
	} {
		before := must(os.ReadFile(c.path))
		_, err := durable.OpenKeyed(c.path, c.limit, durable.KeyedOptions{})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %v: %v, want %q", c.path, c.limit, err, want)
			}
		}
		if !bytes.Equal(must(os.ReadFile(c.path)), before) {
			t.Errorf("%s was written", c.path)
		}
	}
	k = openKeyed(t, path, year(10), durable.KeyedOptions{})
	if _, err := durable.OpenKeyed(path, year(10), durable.KeyedOptions{}); !errors.Is(err, durable.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if d := k.Peek("acme", 0); d.Remaining != 9 {
		t.Errorf("after the refusals: %+v", d)
	}
}

// TestKeyedOptions: what cannot be used is named.
func TestKeyedOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	for want, c := range map[string]struct {
		limit weir.Limit
		o     durable.KeyedOptions
	}{
		"OpenKeyed.limit":         {weir.AtOnce(3), durable.KeyedOptions{}},
		"Limit":                   {weir.Limit{}, durable.KeyedOptions{}},
		"KeyedOptions.QueueLimit": {year(3), durable.KeyedOptions{QueueLimit: -1}},
		"KeyedOptions.MaxKeys":    {year(3), durable.KeyedOptions{MaxKeys: 1_000_000_001}},
		"KeyedOptions.Reserve":    {year(3), durable.KeyedOptions{Reserve: -1}},
	} {
		_, err := durable.OpenKeyed(path, c.limit, c.o)
		if _, ok := errors.AsType[*weir.OptionError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}

// TestKeyedHasRoom: keys that clients make up neither escape the limit nor fill the disk, and keys that were used stay limited.
func TestKeyedHasRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	k := openKeyed(t, path, year(3), durable.KeyedOptions{MaxKeys: 2, Name: "year"})
	full := func() {
		t.Helper()
		for _, key := range []string{"c", "d", "c"} {
			d := k.Take(key, 1)
			if d.Allowed || d.Reason != weir.ReasonTableFull || d.RetryAfter <= 0 || d.Policy != "year" || d.Limit != 3 || k.Peek(key, 1) != d {
				t.Errorf("%s: %+v", key, d)
			}
			err := k.Wait(t.Context(), key, 1)
			if refused, ok := errors.AsType[*weir.RefusedError](err); !ok || refused.Decision.Reason != weir.ReasonTableFull {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	if !k.Allow("a") || !k.Allow("b") {
		t.Fatal("there is no room")
	}
	full()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = openKeyed(t, path, year(3), durable.KeyedOptions{MaxKeys: 2, Name: "year"})
	full()
	if !k.Allow("a") || !k.Allow("a") || k.Allow("a") {
		t.Error("a key that was used is not held to its limit")
	}
}

// TestKeyedMisuse: a call that makes no sense takes nothing, and is not allowed.
func TestKeyedMisuse(t *testing.T) {
	k := openKeyed(t, filepath.Join(t.TempDir(), "quota"), year(3), durable.KeyedOptions{})
	long := strings.Repeat("k", store.MostKeyBytes+1)
	for _, d := range []weir.Decision{k.Take("a", -1), k.Peek("a", -1), k.Take(long, 1), k.Peek(long, 1)} {
		if d.Allowed || d.Reason != weir.ReasonInvalid {
			t.Errorf("%+v", d)
		}
	}
	if d := k.Take("a", 4); d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never {
		t.Errorf("more than the limit: %+v", d)
	}
	for _, err := range []error{
		k.Wait(t.Context(), "a", -1), k.Wait(t.Context(), long, 1), k.Refund(t.Context(), "a", -1), k.Reset(t.Context(), long),
	} {
		if _, ok := errors.AsType[*weir.OptionError](err); !ok {
			t.Error(err)
		}
	}
	_, reserved := k.Reserve(t.Context(), "a", -1, time.Minute)
	for _, err := range []error{k.Wait(t.Context(), "a", -1), k.Wait(t.Context(), long, 1), reserved} {
		if e, ok := errors.AsType[*weir.RefusedError](err); !ok || e.Decision.Reason != weir.ReasonInvalid || e.Err == nil {
			t.Errorf("a call that may wait: %v", err)
		}
	}
	if _, err := k.Reserve(t.Context(), "a", 1, 0); err == nil {
		t.Error("reserved for no time")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Wait(ctx, "a", 1); !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrRefused) {
		t.Errorf("a context that has ended: %v", err)
	}
	if d := k.Peek("a", 0); d.Remaining != 3 {
		t.Errorf("after misuse: %+v", d)
	}
}

// TestKeyedWaits: without a queue a call that would have to wait fails at once, unless it asks for no permits and takes no room in
// one. With a queue it waits as long as it may.
func TestKeyedWaits(t *testing.T) {
	dir := t.TempDir()
	soon := weir.TokenBucket(weir.PerSecond(50), 1)
	k := openKeyed(t, filepath.Join(dir, "without"), year(1), durable.KeyedOptions{Name: "year"})
	if err := k.Wait(t.Context(), "a", 1); err != nil {
		t.Errorf("it is available: %v", err)
	}
	err := k.Wait(t.Context(), "a", 1)
	if refused, ok := errors.AsType[*weir.RefusedError](err); !ok || refused.Decision.Policy != "year" || !errors.Is(err, weir.ErrNoQueue) {
		t.Errorf("without a queue: %v", err)
	}
	k = openKeyed(t, filepath.Join(dir, "probe"), soon, durable.KeyedOptions{})
	if err := errors.Join(k.Wait(t.Context(), "a", 1), k.Wait(t.Context(), "a", 0)); err != nil {
		t.Errorf("a probe that waits without a queue: %v", err)
	}
	k = openKeyed(t, filepath.Join(dir, "with"), soon, durable.KeyedOptions{QueueLimit: 100})
	for range 3 {
		if err := k.Wait(t.Context(), "a", 1); err != nil {
			t.Errorf("with a queue: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := k.Wait(ctx, "a", 1); err != nil {
		t.Errorf("with a queue and a deadline: %v", err)
	}
}

// TestKeyedReservations: a reservation is settled by the process that comes next, and only once.
func TestKeyedReservations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	k := openKeyed(t, path, year(1000), durable.KeyedOptions{})
	more, err := k.Reserve(t.Context(), "acme", 500, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	none, err := k.Reserve(t.Context(), "acme", 100, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = openKeyed(t, path, year(1000), durable.KeyedOptions{})
	if d := k.Peek("acme", 0); d.Remaining != 400 {
		t.Errorf("reserved: %+v", d)
	}
	if err := errors.Join(k.Commit(t.Context(), more, 20), k.Cancel(t.Context(), none)); err != nil {
		t.Error(err)
	}
	if err := k.Commit(t.Context(), more, 20); !errors.Is(err, durable.ErrNotReserved) {
		t.Errorf("settled twice: %v", err)
	}
	if d := k.Peek("acme", 0); d.Remaining != 980 {
		t.Errorf("settled: %+v", d)
	}
	if err := k.Refund(t.Context(), "acme", 5); err != nil {
		t.Error(err)
	}
	if d := k.Peek("acme", 0); d.Remaining != 985 {
		t.Errorf("refunded: %+v", d)
	}
	if err := k.Reset(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
	if d := k.Peek("acme", 0); d.Remaining != 1000 {
		t.Errorf("reset: %+v", d)
	}
}

// TestKeyedCloses: calls during and after Close are refused, and what was granted is there afterwards.
func TestKeyedCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	k := openKeyed(t, path, year(1_000_000), durable.KeyedOptions{})
	var work sync.WaitGroup
	var granted [4]int64
	begun := make(chan struct{}, len(granted))
	for i := range granted {
		work.Go(func() {
			for d := k.Take("a", 1); d.Allowed; d = k.Take("a", 1) {
				if granted[i]++; granted[i] == 1 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range granted {
		<-begun
	}
	if err := errors.Join(k.Close(), k.Close()); err != nil {
		t.Fatal(err)
	}
	work.Wait()
	for _, d := range []weir.Decision{k.Take("a", 1), k.Take("b", 1), k.Peek("a", 1)} {
		if d.Allowed || d.Reason != weir.ReasonClosed {
			t.Errorf("after Close: %+v", d)
		}
	}
	if err := k.Wait(t.Context(), "a", 1); !errors.Is(err, weir.ErrClosed) || !errors.Is(err, weir.ErrRefused) {
		t.Errorf("after Close: %v", err)
	}
	sum := granted[0] + granted[1] + granted[2] + granted[3]
	k = openKeyed(t, path, year(1_000_000), durable.KeyedOptions{})
	if d := k.Peek("a", 0); d.Remaining != 1_000_000-sum {
		t.Errorf("%d are left of 1000000, and %d were granted", d.Remaining, sum)
	}
}

// TestKeyedIsNeverAllowedMore than the limit, and says so whatever number is asked for.
func TestKeyedIsNeverAllowedMore(t *testing.T) {
	const most = 1_000_000_000_000_000
	for _, limit := range []int64{3, most} {
		path := filepath.Join(t.TempDir(), "quota")
		k := openKeyed(t, path, weir.FixedWindow(weir.Per(limit, 365*24*time.Hour)), durable.KeyedOptions{Name: "year"})
		k.Take("a", 1)
		for _, n := range []int64{most + 1, math.MaxInt64} {
			for name, d := range map[string]weir.Decision{"take": k.Take("a", n), "peek": k.Peek("a", n), "new": k.Take("b", n)} {
				if d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never || d.Limit != limit || d.Policy != "year" {
					t.Errorf("%s %d of %d: %+v", name, n, limit, d)
				}
			}
			e, ok := errors.AsType[*weir.RefusedError](k.Wait(t.Context(), "a", n))
			if !ok || e.Decision.Reason != weir.ReasonNever || e.Permits != n || e.Decision.Remaining != limit-1 {
				t.Errorf("wait for %d of %d: %v", n, limit, e)
			}
		}
	}
}

// TestKeyedCloseTellsThoseWhoWait what it tells those who come later: there is no other owner to ask.
func TestKeyedCloseTellsThoseWhoWait(t *testing.T) {
	limit := weir.TokenBucket(weir.PerDay(3), 3)
	k := openKeyed(t, filepath.Join(t.TempDir(), "quota"), limit, durable.KeyedOptions{QueueLimit: 1})
	k.Take("a", 3)
	alone, refused := k.Peek("a", 1).RetryAfter, make(chan error, 1)
	go func() { refused <- k.Wait(t.Context(), "a", 1) }()
	for k.Peek("a", 1).RetryAfter <= alone {
		runtime.Gosched()
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	err := <-refused
	e, ok := errors.AsType[*weir.RefusedError](err)
	if !ok || !errors.Is(err, weir.ErrClosed) || e.Decision.Reason != weir.ReasonClosed || e.Decision.RetryAfter != weir.Never {
		t.Error(err)
	}
}

// TestKeyedSaysWhatRoomCannotHelp: a new key for which there is no room is told what is refused in any case, and a limiter that is
// closed says so.
func TestKeyedSaysWhatRoomCannotHelp(t *testing.T) {
	k := openKeyed(t, filepath.Join(t.TempDir(), "quota"), year(2), durable.KeyedOptions{MaxKeys: 1})
	k.Take("a", 1)
	ask := func(key string, n int64, want weir.Reason, retryAfter time.Duration) {
		t.Helper()
		for name, d := range map[string]weir.Decision{"take": k.Take(key, n), "peek": k.Peek(key, n)} {
			if d.Allowed || d.Reason != want || d.RetryAfter != retryAfter {
				t.Errorf("%s %d of %.8s: %+v, want %v", name, n, key, d, want)
			}
		}
	}
	ask("new", 1, weir.ReasonTableFull, time.Second)
	ask("new", 3, weir.ReasonNever, weir.Never)
	ask("new", -1, weir.ReasonInvalid, weir.Never)
	ask(strings.Repeat("k", store.MostKeyBytes+1), 1, weir.ReasonInvalid, weir.Never)
	_ = k.Close()
	ask("new", 1, weir.ReasonClosed, weir.Never)
	ask("a", 1, weir.ReasonClosed, weir.Never)
	if err := k.Wait(t.Context(), "new", 1); !errors.Is(err, weir.ErrClosed) {
		t.Error(err)
	}
}

// TestDocsRestart: the code of docs/restart.md is that of docsQuota.
func TestDocsRestart(t *testing.T) {
	if err := docsQuota(filepath.Join(t.TempDir(), "quota")); err != nil {
		t.Error(err)
	}
	source, page := string(must(os.ReadFile("example_file_test.go"))), string(must(os.ReadFile("../docs/restart.md")))
	_, source, _ = strings.Cut(source, "func docsQuota(")
	for _, block := range strings.Split(page, "```go\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(strings.ReplaceAll(block, `"/var/lib/shop/quota"`, "path")) {
			if !strings.Contains(source, "\t"+strings.TrimLeft(line, "\t")) {
				t.Errorf("this line is not in a test: %s", line)
			}
		}
	}
}

// TestKeyedInMiddleware: the middleware takes one as any other limiter with keys, tells clients its limit, and does not blame
// them for a limiter that is closed.
func TestKeyedInMiddleware(t *testing.T) {
	k := openKeyed(t, filepath.Join(t.TempDir(), "quota"), weir.CalendarWindow(2, algo.Calendar{Unit: algo.CalendarDay}), durable.KeyedOptions{Name: "day"})
	limit, err := httplimit.New(httplimit.Options{Keyed: k, Key: httplimit.RequireHeader("X-Customer")})
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for i, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		if want == http.StatusServiceUnavailable {
			_ = k.Close()
		}
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set("X-Customer", "acme")
		handler.ServeHTTP(w, r)
		if w.Code != want || i < 3 && w.Header().Get("Ratelimit-Policy") != `"day";q=2;w=86400` {
			t.Errorf("request %d: %d %v %s", i, w.Code, w.Header(), w.Body)
		}
	}
}

// TestRemovedLockLetsOneProcessGrant: a process whose lock is removed makes it again. If another one has opened the file by then,
// that one has it, and together they grant no more than the limit.
func TestRemovedLockLetsOneProcessGrant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota")
	const most = 1000
	first := openKeyed(t, path, year(most), durable.KeyedOptions{})
	granted := int64(0)
	take := func(k *durable.Keyed, n int64) bool {
		d := k.Take("acme", n)
		if d.Allowed {
			granted += n
		}
		return d.Allowed
	}
	if !take(first, 100) {
		t.Fatal("the first permits are refused")
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if !take(first, 200) {
		t.Error("a lock that no other process has taken was removed, and the process does not go on")
	}
	if _, err := durable.OpenKeyed(path, year(most), durable.KeyedOptions{}); !errors.Is(err, durable.ErrInUse) {
		t.Fatalf("the lock was not made again: %v", err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	second := openKeyed(t, path, year(most), durable.KeyedOptions{})
	for i := range 40 {
		take([]*durable.Keyed{first, second}[i%2], 100)
	}
	if granted > most {
		t.Errorf("%d of %d were granted", granted, most)
	}
	if d := second.Peek("acme", 0); d.Remaining > most-granted || d.Reason == weir.ReasonUnavailable {
		t.Errorf("the process that has the file: %+v, with %d granted", d, granted)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	before := granted
	for range 200 {
		take(first, 1)
	}
	// What the file has counted in advance is its own, unless the pause after a write that has failed goes on.
	if more := granted - before; more >= most/10 || granted > most {
		t.Errorf("a process goes on with what it knew before another one had the file: %d more, of %d in all", more, granted)
	}
	_ = first.Close()
	third := openKeyed(t, path, year(most), durable.KeyedOptions{})
	if d := third.Peek("acme", 0); d.Remaining > most-granted {
		t.Errorf("after a restart: %+v, with %d granted", d, granted)
	}
}

// TestFileThatChangesWhileItIsUsedIsWrittenAnew: a file that is removed, replaced by an older copy or cut off while a process has
// it open gives nothing back to the next process.
func TestFileThatChangesWhileItIsUsedIsWrittenAnew(t *testing.T) {
	for name, change := range map[string]func(path string, older []byte) error{
		"removed":  func(path string, _ []byte) error { return os.Remove(path) },
		"cut off":  func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"appended": func(path string, older []byte) error { return os.WriteFile(path, append(older, older...), 0o600) },
		"replaced": func(path string, older []byte) error {
			return errors.Join(os.WriteFile(path+".old", older, 0o600), os.Rename(path+".old", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "quota")
			k := openKeyed(t, path, year(1000), durable.KeyedOptions{})
			k.Take("first", 1)
			older, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := k.Take("acme", 900); !d.Allowed {
				t.Fatal(d)
			}
			if err := change(path, older); err != nil {
				t.Fatal(err)
			}
			if d := k.Take("next", 1); d.Allowed {
				t.Errorf("it was allowed by a write that the next process does not find: %+v", d)
			}
			for deadline := time.Now().Add(time.Minute); !k.Take("next", 1).Allowed; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatal("nothing is allowed any more")
				}
			}
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			k = openKeyed(t, path, year(1000), durable.KeyedOptions{})
			if d := k.Peek("acme", 0); d.Remaining > 100 {
				t.Errorf("after a restart: %+v", d)
			}
		})
	}
}
