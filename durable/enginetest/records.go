package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/durable"
)

// notBefore: a process that shows no sign of life must know that its term is over before another one is elected.
func notBefore(tt *testing.T, c Cluster) {
	t := test{tt, c}
	e := c.Engine(tt)
	term := t.elected(e, "dies")
	next := t.campaign(t.engine(), "next")
	pass(c.TTL / 3)
	expires := term.Expires()
	begin := time.Now()
	if err := e.Close(); err != nil { // without resigning
		t.Error(err)
	}
	won := t.wins(next)
	if next.at.Before(expires) {
		t.Errorf("the next was elected %v before the term expired", expires.Sub(next.at))
	}
	t.Logf("elected %v after the last sign of life could have been, %v after the term expired",
		next.at.Sub(begin), next.at.Sub(expires))
	t.within(c.TTL+2*time.Second, next.at.Sub(begin), "until the next was elected")
	if won.Epoch() <= term.Epoch() {
		t.Errorf("epoch %d after %d", won.Epoch(), term.Epoch())
	}
}

func recordsAreKept(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	t.holds(term, "a", "", 0)
	r1 := t.store(term, write("a", "1", 0))
	if r1 <= 0 {
		t.Errorf("revision %d", r1)
	}
	t.holds(term, "a", "1", r1)
	r2 := t.store(term, write("a", "2", r1), write("b", "1", 0))
	if r2 <= r1 {
		t.Errorf("revision %d after %d", r2, r1)
	}
	t.resign(term)
	term = t.elected(t.engine(), "second")
	t.holds(term, "a", "2", r2)
	t.holds(term, "b", "1", r2)
	t.holds(term, "c", "", 0)
}

func recordsAreDeleted(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	r := t.store(term, write("a", "1", 0), write("b", "1", 0))
	if err := t.refused(term, durable.Write{Name: "a"}); !errors.Is(err, durable.ErrConflict) {
		t.Errorf("deleted at another revision: %v", err)
	}
	t.holds(term, "a", "1", r)
	r2 := t.store(term, durable.Write{Name: "a", Revision: r}, write("b", "2", r))
	t.holds(term, "a", "", 0)
	t.holds(term, "b", "2", r2)
	r3 := t.store(term, write("a", "3", 0))
	t.holds(term, "a", "3", r3)
	t.store(term, durable.Write{Name: "never"}) // what does not exist can be deleted
	empty := t.store(term, durable.Write{Name: "empty", Value: []byte{}})
	t.holds(term, "empty", "", empty)
}

func allOrNothing(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	r := t.store(term, write("a", "1", 0), write("b", "1", 0))
	for name, writes := range map[string][]durable.Write{
		"it exists":      {write("c", "2", 0), write("a", "2", 0)},
		"it was newer":   {write("a", "2", r), write("b", "2", r-1), write("c", "2", 0)},
		"it never was":   {write("a", "2", r), write("c", "2", r)},
		"it is no newer": {write("c", "2", 0), write("b", "2", r+1)},
	} {
		if err := t.refused(term, writes...); !errors.Is(err, durable.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.holds(term, "a", "1", r)
	t.holds(term, "b", "1", r)
	t.holds(term, "c", "", 0)
	select {
	case <-term.Done():
		t.Error("a conflict has ended the term")
	default:
	}
	var most []durable.Write
	for i := range durable.MostWrites {
		most = append(most, write(fmt.Sprintf("most/%03d", i), "1", 0))
	}
	r = t.store(term, most...)
	for i := range most {
		most[i].Revision = r
	}
	most[len(most)-1].Revision--
	if err := t.refused(term, most...); !errors.Is(err, durable.ErrConflict) {
		t.Error(err)
	}
	t.holds(term, "most/000", "1", r)
	if _, err := term.Store(t.Context(), append(most, write("more", "", 0))); err == nil {
		t.Errorf("%d records were written", len(most)+1)
	}
}

// deposed: a former owner cannot write, although it has never noticed.
func deposed(tt *testing.T, c Cluster) {
	t := test{tt, c}
	first := t.elected(t.engine(), "first")
	r := t.store(first, write("a", "1", 0))
	t.resign(first)
	second := t.elected(t.engine(), "second")
	if err := t.refused(first, write("a", "old", r)); !errors.Is(err, durable.ErrDeposed) {
		t.Errorf("the one before: %v", err)
	}
	if err := t.refused(first, write("new", "old", 0)); !errors.Is(err, durable.ErrDeposed) {
		t.Errorf("the one before: %v", err)
	}
	t.holds(second, "a", "1", r)
	t.holds(second, "new", "", 0)
	r = t.store(second, write("a", "2", r))
	t.holds(second, "a", "2", r)
}

// writers: of several writes at the same time that expect the same revision one is written, and the others are told.
func writers(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	var mu sync.Mutex
	won := map[string]int64{}
	var unsure atomic.Bool
	var work sync.WaitGroup
	for i := range 16 {
		work.Go(func() {
			value := fmt.Sprint(i)
			r, err := term.Store(t.Context(), []durable.Write{write("a", value, 0)})
			switch {
			case err == nil:
				mu.Lock()
				won[value] = r
				mu.Unlock()
			case errors.Is(err, durable.ErrConflict):
			case t.c.Virtual:
				t.Error(err)
			default: // of a server that has lost its leader it is not known
				t.Logf("it is not known whether %s was written: %v", value, err)
				unsure.Store(true)
			}
		})
	}
	work.Wait()
	if len(won) > 1 || len(won) == 0 && !unsure.Load() {
		t.Fatalf("%d have won", len(won))
	}
	for value, r := range won {
		t.holds(term, "a", value, r)
	}
}

// names: a name is bytes, and has nothing to do with another one that it begins with.
func names(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	all := []string{
		"a", "a/", "a/b", "aa", "ab", "/", "//", "..", "a\x00", "\x00", "\xff", "\xff\xff", "%2f", " ", "\n", "é",
		strings.Repeat("x", 1300),
	}
	var every []byte
	for b := range 256 {
		every = append(every, byte(b))
	}
	all = append(all, string(every))
	var writes []durable.Write
	for _, name := range all {
		writes = append(writes, write(name, "of "+name, 0))
	}
	r := t.store(term, writes...)
	for _, name := range all {
		t.holds(term, name, "of "+name, r)
	}
	t.holds(term, "a/b/", "", 0)
	listed, err := t.page(term, "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	got := make([]string, 0, len(listed))
	for _, l := range listed {
		got = append(got, l.Name)
		if string(l.Value) != "of "+l.Name || l.Revision != r {
			t.Errorf("%+v", l)
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("the names are %q, want %q", got, all)
	}
	for prefix, want := range map[string][]string{"\xff": {"\xff", "\xff\xff"}, "a/": {"a/", "a/b"}, "zz": {}} {
		page, err := t.page(term, prefix, "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, 0, len(page))
		for _, l := range page {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("those that begin with %q are %q, want %q", prefix, got, want)
		}
	}
}

func lists(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	var writes []durable.Write
	for i := range 50 {
		writes = append(writes, write(fmt.Sprintf("list/%02d", i), fmt.Sprint(i), 0))
	}
	t.store(term, writes...)
	t.store(term, write("list", "", 0), write("list0", "", 0), write("lisa/", "", 0))
	last, err := t.list(term, "list/", 3)
	if err != nil || len(last) != 3 || last[0].Name != "list/49" || last[2].Name != "list/47" || string(last[0].Value) != "49" {
		t.Errorf("the last are %v (%v)", last, err)
	}
	all, err := t.list(term, "list/", 1000)
	if err != nil || len(all) != 50 || all[49].Name != "list/00" {
		t.Errorf("there are %d (%v)", len(all), err)
	}
	for _, most := range []int{0, -1} {
		if none, err := t.list(term, "list/", most); err != nil || len(none) != 0 {
			t.Errorf("%d (%v), want none", len(none), err)
		}
		if none, err := t.page(term, "list/", "", most); err != nil || len(none) != 0 {
			t.Errorf("%d (%v), want none", len(none), err)
		}
	}
	after, count := "", 0
	for {
		page, err := t.page(term, "list/", after, 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			if want := fmt.Sprintf("list/%02d", count); p.Name != want {
				t.Errorf("%q, want %q", p.Name, want)
			}
			count++
			after = p.Name
		}
	}
	if count != 50 {
		t.Errorf("the pages had %d", count)
	}
	for after, want := range map[string]int{"a": 50, "list/": 50, "list/24": 25, "list/24x": 25, "list/49": 0, "z": 0} {
		if page, err := t.page(term, "list/", after, 100); err != nil || len(page) != want {
			t.Errorf("after %q there are %d (%v), want %d", after, len(page), err, want)
		}
	}
}

func sizes(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	name := "large"
	large := make([]byte, durable.MostBytes-len(name))
	_, _ = rand.Read(large)
	r := t.store(term, durable.Write{Name: name, Value: large})
	v, err := t.load(term, name)
	if err != nil || !bytes.Equal(v.Value, large) {
		t.Errorf("it has %d bytes of %d (%v)", len(v.Value), len(large), err)
	}
	_, err = term.Store(t.Context(), []durable.Write{{Name: name, Value: append(slices.Clone(large), 0), Revision: r}})
	if !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
	var writes []durable.Write
	for i := range durable.MostWrites {
		n := fmt.Sprintf("part/%03d", i)
		writes = append(writes, durable.Write{Name: n, Value: make([]byte, durable.MostBytes/durable.MostWrites-len(n))})
	}
	t.store(term, writes...)
	page, err := t.page(term, "", "", 1000)
	if err != nil || len(page) != 1+len(writes) {
		t.Errorf("there are %d (%v)", len(page), err)
	}
}

// readers: what was written is seen at once, whichever process reads, and whatever it has written itself.
func readers(tt *testing.T, c Cluster) {
	t := test{tt, c}
	engines := []durable.Engine{t.engine(), t.engine(), t.engine()}
	var r int64
	for i := range 6 {
		term := t.elected(engines[i%len(engines)], "reader")
		if i > 0 {
			t.holds(term, "a", fmt.Sprint(i-1), r)
		}
		for n := range 5 {
			r = t.store(term, write("a", fmt.Sprintf("%d/%d", i, n), r))
			t.holds(term, "a", fmt.Sprintf("%d/%d", i, n), r)
		}
		r = t.store(term, write("a", fmt.Sprint(i), r))
		t.resign(term)
	}
}

func contexts(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "first")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := term.Load(ctx, "a"); err == nil {
		t.Error("it was read")
	}
	if _, err := term.Store(ctx, []durable.Write{write("a", "1", 0)}); err == nil {
		t.Error("it was written")
	}
	if _, err := term.List(ctx, "", 1); err == nil {
		t.Error("it was listed")
	}
	if _, err := term.Page(ctx, "", "", 1); err == nil {
		t.Error("it was listed")
	}
	select {
	case <-term.Done():
		t.Error("that has ended the term")
	default:
	}
}
