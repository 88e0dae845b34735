package etcd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// logged is what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// filled is a directory in which a server has kept records.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c, err := etcd.Join(t.Context(), lasting(etcd.ClusterOptions{Directory: dir}))
	if err != nil {
		t.Fatal(err)
	}
	ready(t, c.Node())
	for range 5 {
		r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.Per(1, time.Hour), 10), N: 1, Hold: time.Hour}
		if a := spectest.Acquire(t.Context(), c.Node(), r); a.Reason != weir.ReasonNone {
			t.Fatalf("%v %v", a.Reason, a.Err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// end is where the log of a server ends, which is followed by zeros.
func end(t *testing.T, dir string) (file string, at int64) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%v %v", all, err)
	}
	b, err := os.ReadFile(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1], int64(len(bytes.TrimRight(b, "\x00")))
}

// span is where the content of a record of a log is.
type span struct{ from, to int64 }

// records are those of a log, as etcd writes them: before each of them are eight bytes with its length and how many zeros follow it. What
// is not known by its length cannot be told from one of which only the beginning has reached the disk.
func records(tb testing.TB, file string) (all []span) {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	const head = 8
	for at := int64(0); at+head <= int64(len(b)); {
		field := binary.LittleEndian.Uint64(b[at:])
		length, zeros := int64(field&(1<<56-1)), int64(0)
		if field>>63 == 1 {
			zeros = int64(field >> 56 & 7)
		}
		r := span{at + head, at + head + length}
		if length == 0 || r.to > int64(len(b)) {
			break
		}
		all = append(all, r)
		at = r.to + zeros
	}
	if len(all) == 0 {
		tb.Fatalf("there is nothing in %s", file)
	}
	return all
}

func overwrite(t *testing.T, file string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryInUse: another server does not use the same directory, and says so at once.
func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	s, err := etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: dir}); err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Error(err)
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: dir}); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// TestTornRecord: a last record of which only the beginning has reached the disk is cut off.
func TestTornRecord(t *testing.T) {
	dir := filled(t)
	file, at := end(t, dir)
	if err := os.Truncate(file, at-20); err != nil {
		t.Fatal(err)
	}
	c, err := etcd.Join(t.Context(), lasting(etcd.ClusterOptions{Directory: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ready(t, c.Node()) // which may take as long as a term, if its end was cut off
	r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.Per(1, time.Hour), 10), N: 6}
	if a := spectest.Acquire(t.Context(), c.Node(), r); a.Reason != weir.ReasonLimited {
		t.Errorf("5 of 10 were granted before, and 6 afterwards: %v %v", a.Reason, a.Err)
	}
}

// TestWrongChecksum: a server does not start on a log with a record that has changed, and says where it is and what can be done.
func TestWrongChecksum(t *testing.T) {
	dir := filled(t)
	file, _ := end(t, dir)
	var large []span
	for _, r := range records(t, file) {
		if r.to-r.from > 100 { // which ends with what it is about
			large = append(large, r)
		}
	}
	changed := []byte("changed")
	overwrite(t, file, large[len(large)/2].to-int64(len(changed)), changed)
	var log logged
	c, err := etcd.Join(t.Context(), etcd.ClusterOptions{Directory: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil {
		_ = c.Close()
		t.Fatal("it was passed over")
	}
	if s := err.Error(); !strings.Contains(s, dir) || !strings.Contains(s, "crc mismatch") || !strings.Contains(s, "backup") {
		t.Error(s)
	}
	if !errors.Is(err, etcd.ErrRepair) {
		t.Errorf("%v: it is tried again for ever", err)
	}
	if !strings.Contains(log.String(), "crc mismatch") {
		t.Errorf("logged: %s", &log)
	}
}

// TestQuota: when the database is full nothing is written, and it goes on once there is room again, as what is old is given up.
func TestQuota(t *testing.T) {
	t.Parallel()
	s, err := etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: t.TempDir(), UnsafeNoFsync: true, Quota: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := etcd.New(s.Client(), etcd.Options{TTL: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	term, err := e.Campaign(t.Context(), "here")
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 900<<10)
	var revision int64
	full := false
	for range 100 {
		var r int64
		if r, err = term.Store(t.Context(), []durable.Write{{Name: "a", Value: value, Revision: revision}}); err != nil {
			if !strings.Contains(err.Error(), "quota") {
				t.Fatal(err)
			}
			full = true
			break
		}
		revision = r
	}
	if !full {
		t.Fatal("it was never full")
	}
	// etcd may have written what it says there was no room for, if the quota was reached between its two looks.
	v, r, failed := term.Load(t.Context(), "a")
	if failed != nil || r < revision || len(v) != len(value) {
		t.Errorf("%d bytes of revision %d, after %d (%v)", len(v), r, revision, failed)
	}
	revision = r
	eventually(t, "there is room again", func() bool {
		_, err = term.Store(t.Context(), []durable.Write{{Name: "a", Value: value, Revision: revision}})
		if errors.Is(err, durable.ErrConflict) { // one that was refused as there is no room left may have been written
			if _, r, failed := term.Load(t.Context(), "a"); failed == nil {
				revision = r
			}
		}
		if errors.Is(err, durable.ErrDeposed) { // it may take longer than a term to make room
			if again, failed := e.Campaign(t.Context(), "here"); failed == nil {
				term = again
			}
		}
		return err == nil
	})
}

// TestMajorityIsMissing: it is said what must be looked at, in time.
func TestMajorityIsMissing(t *testing.T) {
	t.Parallel()
	o := three(t)[0]
	o.StartTimeout = 2 * time.Second
	begin := time.Now()
	c, err := etcd.Join(t.Context(), o)
	if err == nil {
		_ = c.Close()
		t.Fatal("one of three is no majority")
	}
	if s := err.Error(); !strings.Contains(s, "majority") || !strings.Contains(s, o.Directory) {
		t.Error(s)
	}
	if d := time.Since(begin); d > inTheEnd {
		t.Errorf("it took %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	o = three(t)[0]
	if _, err := etcd.Join(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestEndpointsDoNotAnswer: the error names them, but not their passwords.
func TestEndpointsDoNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	endpoint := "http://" + l.Addr().String()
	_, err = etcd.Join(t.Context(), etcd.ClusterOptions{
		Endpoints: []string{endpoint}, Username: "user", Password: "secret", Address: "127.0.0.1:0", StartTimeout: time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), endpoint) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestCannotGoOn: a server that cannot write its log any more ends neither the process nor the calls of those who ask, says why, and can
// be closed.
func TestCannotGoOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log logged
	c, err := etcd.Join(t.Context(), etcd.ClusterOptions{
		Directory: dir, UnsafeNoFsync: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Server().Err(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "member", "wal")); err != nil { // so that there can be no further file
		t.Fatal(err)
	}
	value := strings.Repeat("x", 900<<10)
	ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
	defer cancel()
	start := time.Now()
	for failed := false; !failed; {
		short, done := context.WithTimeout(ctx, 2*time.Second)
		_, err := c.Server().Client().Put(short, "large", value)
		done()
		select {
		case <-c.Failed():
			failed = true
		default:
		}
		if ctx.Err() != nil {
			t.Fatalf("it never failed: %v", err)
		}
	}
	if err := c.Server().Err(); err == nil {
		t.Error("it does not say why")
	}
	t.Logf("failed after %v: %v", time.Since(start), c.Server().Err())
	begin := time.Now()
	r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.PerSecond(1), 10), N: 1, Wait: 2 * time.Second}
	if a := spectest.Acquire(t.Context(), c.Node(), r); a.Reason == weir.ReasonNone {
		t.Error("it was granted")
	}
	if d := time.Since(begin); d > inTheEnd {
		t.Errorf("it took %v to say that nothing is granted", d)
	}
	begin = time.Now()
	_ = c.Close()
	if d := time.Since(begin); d > inTheEnd {
		t.Errorf("it took %v to close", d)
	} else {
		t.Logf("closed in %v", d)
	}
	if !strings.Contains(log.String(), "cannot go on") {
		t.Errorf("logged: %s", &log)
	}
}
