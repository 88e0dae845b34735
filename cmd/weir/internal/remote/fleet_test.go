package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/store"
)

var errNobodyThere = fmt.Errorf("%w: nobody is there", store.ErrUnavailable)

// opened counts how often a store was opened and closed.
type opened struct {
	store.Home

	closed atomic.Int64
}

func (o *opened) Close() error {
	o.closed.Add(1)
	return o.Home.Close()
}

func memory(t *testing.T) *opened {
	t.Helper()
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &opened{Home: m}
}

// TestLateStore: a store that is not there at first is used as soon as it is, and asked for ever less often until then.
func TestLateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, attempts := memory(t), 0
		var log strings.Builder
		l, err := openLate(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "here", func() (store.Home, error) {
			if attempts++; attempts < 12 {
				return nil, errNobodyThere
			}
			return m, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		charges := []store.Charge{{Policy: "p", Limit: weir.TokenBucket(weir.PerHour(1), 0), N: 1}}
		decisions := make([]weir.Decision, 1)
		for name, call := range calls(l, charges, decisions) {
			if err := call(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "nobody is there") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l.missing() == nil {
			t.Error("it is there")
		}
		start := time.Now()
		<-l.ended
		if took := time.Since(start); attempts != 12 || took < 6*time.Second || took > 20*time.Second {
			t.Errorf("%d attempts in %v", attempts, took)
		}
		if l.missing() != nil || strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), `msg="the store is reached" store=here`) {
			t.Errorf("%v\n%s", l.missing(), log.String())
		}
		for name, call := range calls(l, charges, decisions) {
			if err := call(); err != nil && !errors.Is(err, store.ErrNotReserved) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil || m.closed.Load() != 1 {
			t.Errorf("%v, closed %d times", err, m.closed.Load())
		}
	})
}

// calls are all calls of a store.
func calls(s store.Home, charges []store.Charge, decisions []weir.Decision) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"Take":   func() error { return store.Take(ctx, s, charges, decisions) },
		"Peek":   func() error { return store.Peek(ctx, s, charges, decisions) },
		"Refund": func() error { return store.Refund(ctx, s, charges) },
		"Debit":  func() error { return store.Debit(ctx, s, charges, decisions) },
		"Reset":  func() error { return store.Reset(ctx, s, "p", "") },
		"Reserve": func() error {
			_, err := store.Reserve(ctx, s, charges, decisions, time.Minute)
			return err
		},
		"Commit": func() error { return store.Commit(ctx, s, store.Hold{ID: "x", Charges: charges}, []int64{1}) },
		"Cancel": func() error { return store.Cancel(ctx, s, store.Hold{ID: "x", Charges: charges}) },
		"Lend": func() error {
			_, _, err := store.Lend(ctx, s, charges[0], 1)
			return err
		},
		"Return": func() error { return store.Return(ctx, s, store.Hold{Charges: charges[:1], Taken: 1}, 1) },
		"Inspect": func() error {
			_, err := store.Inspect(ctx, s, charges[0])
			return err
		},
	}
}

// TestLateStoreIsClosed: one that is closed is opened no more, and closed if it was being opened.
func TestLateStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, asked, first := memory(t), make(chan struct{}), true
		opening := make(chan struct{})
		l, err := openLate(t.Context(), slog.New(slog.DiscardHandler), "here", func() (store.Home, error) {
			if first {
				first = false
				return nil, errNobodyThere
			}
			close(asked)
			<-opening
			return m, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		if err = l.Close(); err != nil {
			t.Error(err)
		}
		if _, err = l.inner(); !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
		close(opening)
		<-l.ended
		if m.closed.Load() != 1 {
			t.Errorf("closed %d times", m.closed.Load())
		}

		l, err = openLate(t.Context(), slog.New(slog.DiscardHandler), "here", func() (store.Home, error) { return nil, errNobodyThere })
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-l.ended
	})
}

// TestOpenSaysWhatIsWrong: what cannot be meant is an error, without a password.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	wrong, err := config.ParseStore("redis://u:hunter2@h")
	if err != nil {
		t.Fatal(err)
	}
	wrong.Timeout = time.Hour
	if _, err := OpenFleet(t.Context(), wrong, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "weir: --store: redis://u:xxxxx@h: ") ||
		!strings.Contains(err.Error(), "Timeout") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
