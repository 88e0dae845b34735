package spectest_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// memory is an owner in a cluster in memory, in virtual time.
func memory(t *testing.T, reserve int64) *spectest.Subject {
	m, err := durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := &spectest.Subject{Reserve: reserve, Writes: m.Writes}
	var engine *durable.MemoryEngine
	var owner *durable.Owner
	start := func() {
		engine = m.Engine()
		term, err := engine.Campaign(t.Context(), "here")
		if err != nil {
			t.Fatal(err)
		}
		o := durable.OwnerOptions{Reserve: max(reserve, 0), WriteTimeout: time.Minute} // the machine may stand still in real time
		if owner, err = durable.NewOwner(term, o); err != nil {
			t.Fatal(err)
		}
		s.Asked = []spectest.Asked{owner}
	}
	start()
	s.Fail = func(fail bool) {
		if fail {
			engine.Fail(errors.New("the disk is full"))
		} else {
			engine.Fail(nil)
		}
	}
	stop := func() {
		if err := owner.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = engine.Close()
	}
	s.Again = func(*testing.T) []spectest.Asked {
		if reserve < 0 {
			stop()
		} else { // as if it had died
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			engine.Fail(errors.New("it is dead"))
			_ = owner.Stop(ctx)
			_ = engine.Close()
		}
		start()
		return s.Asked
	}
	t.Cleanup(stop)
	return s
}

// TestSpecInVirtualTime: an owner that hands over, and one that dies, with and without records that are ahead.
func TestSpecInVirtualTime(t *testing.T) {
	for name, reserve := range map[string]int64{"Stopped": -1, "Dies": 0, "DiesWithReserve1": 1, "DiesWithReserve3": 3} {
		for _, row := range spectest.Rows() {
			t.Run(name+"/"+row.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memory(t, reserve)
					if row.Needs(s) {
						row.Run(t, s)
					}
				})
			})
		}
	}
}

// TestSpecInRealTime: the suite is quick enough and does not depend on virtual time.
func TestSpecInRealTime(t *testing.T) {
	spectest.Run(t, func(t *testing.T) spectest.Subject { return *memory(t, -1) })
}

// file is an owner over a file, in virtual time, which is opened anew each time.
func file(t *testing.T, path string, reserve int64) *spectest.Subject {
	s := &spectest.Subject{Reserve: reserve}
	var f *durable.File
	var owner *durable.Owner
	start := func() {
		var err error
		if f, err = durable.OpenFile(path, durable.FileOptions{}); err != nil {
			t.Fatal(err)
		}
		term, err := f.Engine().Campaign(t.Context(), "here")
		if err != nil {
			t.Fatal(err)
		}
		if owner, err = durable.NewOwner(term, durable.OwnerOptions{Reserve: max(reserve, 0)}); err != nil {
			t.Fatal(err)
		}
		s.Asked = []spectest.Asked{owner}
	}
	start()
	s.Again = func(*testing.T) []spectest.Asked {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if reserve >= 0 { // as if it had died
			cancel()
		}
		if err := owner.Stop(ctx); err != nil && reserve < 0 {
			t.Error(err)
		}
		_ = f.Close()
		start()
		return s.Asked
	}
	t.Cleanup(func() {
		_ = owner.Stop(context.Background())
		_ = f.Close()
	})
	return s
}

// TestSpecOverAFile: an owner that ends in order, and one that dies, with and without records that are ahead.
func TestSpecOverAFile(t *testing.T) {
	for name, reserve := range map[string]int64{"Stopped": -1, "Dies": 0, "DiesWithReserve1": 1, "DiesWithReserve3": 3} {
		for _, row := range spectest.Rows() {
			t.Run(name+"/"+row.Name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "limits")
				synctest.Test(t, func(t *testing.T) {
					s := file(t, path, reserve)
					if row.Needs(s) {
						row.Run(t, s)
					}
				})
			})
		}
	}
}
