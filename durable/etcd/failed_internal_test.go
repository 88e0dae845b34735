package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestFailedServerCannotLead: a server that cannot go on stops only in part, as etcd stays where it was when the disk failed. It
// must not be given the lead of its peers: no lease would be kept then, and no node could own the limits.
func TestFailedServerCannotLead(t *testing.T) {
	t.Parallel()
	peers := map[string]string{}
	for i, at := range FreeAddresses(t, 3) {
		peers[fmt.Sprintf("node%d", i)] = "http://" + at
	}
	var (
		work    sync.WaitGroup
		servers [3]*Server
	)
	for i := range servers {
		work.Go(func() {
			s, err := Start(context.Background(), EmbeddedOptions{
				Directory: t.TempDir(), Name: fmt.Sprintf("node%d", i), Peers: peers, UnsafeNoFsync: true,
			})
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	work.Wait()
	defer func() {
		for _, s := range servers {
			if s != nil {
				work.Go(func() { _ = s.Close() })
			}
		}
		work.Wait()
	}()
	if t.Failed() {
		return
	}
	var leader *Server
	for leader == nil {
		for _, s := range servers {
			if e := s.etcd.Server; e.Lead() == uint64(e.MemberID()) {
				leader = s
			}
		}
	}
	broken := servers[0]
	if broken == leader {
		broken = servers[1]
	}
	broken.failure.fail(errors.New("the disk is full"))
	<-broken.apart
	if reachable(t.Context(), []string{peers[broken.etcd.Server.Cfg.Name]}) {
		t.Error("its peers find it in order")
	}
	e := leader.etcd.Server
	short, cancel := context.WithTimeout(t.Context(), e.Cfg.ElectionTimeout())
	defer cancel()
	if err := e.MoveLeader(short, uint64(e.MemberID()), uint64(broken.etcd.Server.MemberID())); err == nil {
		t.Error("it was given the lead")
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	for _, s := range servers {
		if s == broken {
			continue
		}
		_, err := s.client.Grant(ctx, 10)
		for err != nil && ctx.Err() == nil { // they may just elect another leader, where the machine stands still
			_, err = s.client.Grant(ctx, 10)
		}
		if err != nil {
			t.Errorf("a lease: %v", err)
		}
	}
}

// TestLogThatCouldNotBeWritten: a database that is ahead of its log is one whose log has lost its end, unless the log could not be
// written beyond that.
func TestLogThatCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Start(t.Context(), EmbeddedOptions{Directory: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	shorten := func() {
		path := filepath.Join(dir, "member", "wal")
		w, wrong := wal.OpenForRead(zap.NewNop(), path, &walpb.Snapshot{})
		if wrong != nil {
			t.Fatal(wrong)
		}
		metadata, state, entries, wrong := w.ReadAll()
		_ = w.Close()
		if err = errors.Join(wrong, os.RemoveAll(path)); err != nil {
			t.Fatal(err)
		}
		if w, err = wal.Create(zap.NewNop(), path, metadata); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(w.Save(state, entries[:len(entries)-1]), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	fatal := func(message string) {
		var ended sync.WaitGroup
		ended.Go(func() {
			newFailure(dir).OnWrite(&zapcore.CheckedEntry{Entry: zapcore.Entry{Message: message}}, nil)
			t.Error("the goroutine goes on")
		})
		ended.Wait()
	}
	refused := func(want bool, what string) {
		t.Helper()
		found := verify(dir, true)
		if want && (found == nil || !strings.Contains(found.Error(), "the end of the log is lost")) || !want && found != nil {
			t.Errorf("%s: %v", what, found)
		}
	}
	old := filepath.Join(dir, unwritten+"1")
	if err = os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(false, "whole")
	if _, err = os.Stat(old); err == nil {
		t.Error("the note of an entry that was passed is left")
	}
	shorten()
	fatal("failed to commit tx")
	refused(true, "an entry is lost")
	fatal(logNotWritten)
	refused(false, "an entry could not be written")
	refused(false, "the same once more")
	shorten()
	refused(true, "an entry was lost later")
	if notes, _ := filepath.Glob(filepath.Join(dir, unwritten+"*")); notes != nil {
		t.Errorf("%v are left", notes)
	}
}

// TestCallsWaitForALeader: a call about the nodes is made again while they choose a leader, and no longer than its context.
func TestCallsWaitForALeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, want := range unsettled {
			calls := 0
			err := settled(t.Context(), func(context.Context) error {
				if calls++; calls < 3 {
					return fmt.Errorf("a call: %w", want)
				}
				return nil
			})
			if err != nil || calls != 3 {
				t.Errorf("%v after %d calls, %v", err, calls, want)
			}
			began := time.Now()
			if err := settled(t.Context(), func(context.Context) error { return want }); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			} else if took := time.Since(began); took != settleTime {
				t.Errorf("it took %v", took)
			}
		}
		calls := 0
		err := settled(t.Context(), func(ctx context.Context) error {
			if calls++; calls == 3 {
				return nil
			}
			<-ctx.Done() // what was proposed is lost
			return []error{rpctypes.ErrTimeout, ctx.Err()}[calls-1]
		})
		if err != nil || calls != 3 {
			t.Errorf("%v after %d calls of which two were lost", err, calls)
		}
		calls = 0
		err = settled(t.Context(), func(context.Context) error { calls++; return rpctypes.ErrNoSpace })
		if !errors.Is(err, rpctypes.ErrNoSpace) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}
