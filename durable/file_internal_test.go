package durable

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// open opens a file with a term of its own.
func open(t *testing.T, path string, d disk) (*File, Term) {
	t.Helper()
	f, err := OpenFile(path, FileOptions{disk: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	term, err := f.Engine().Campaign(t.Context(), "here")
	if err != nil {
		t.Fatal(err)
	}
	return f, term
}

// said is what the records of a term say.
func said(t *testing.T, term Term) map[string]string {
	t.Helper()
	page, err := term.Page(t.Context(), "", "", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, r := range page {
		m[r.Name] = string(r.Value)
	}
	return m
}

// playedFile is a history of a file on a disk that fails, and what its records must be.
type playedFile struct {
	t       *testing.T
	rand    *rand.Rand
	disk    *testDisk
	file    *File
	term    Term
	epoch   int64
	known   map[string]string
	unknown []map[string]string // what may be there instead, since nothing is known to have been written
	written int
}

// begin opens the file, and looks for one of the states that it may have.
func (p *playedFile) begin() {
	p.t.Helper()
	p.file, p.term = open(p.t, "limits", p.disk)
	got := said(p.t, p.term)
	if !slices.ContainsFunc(append(p.unknown, p.known), func(m map[string]string) bool { return maps.Equal(m, got) }) {
		p.t.Fatalf("there is %v, want %v, or %v", got, p.known, p.unknown)
	}
	if p.term.Epoch() <= p.epoch {
		p.t.Fatalf("epoch %d after %d", p.term.Epoch(), p.epoch)
	}
	p.known, p.unknown, p.epoch = got, nil, p.term.Epoch()
}

// store writes something at random, and notes what may be there then.
func (p *playedFile) store() {
	next := maps.Clone(p.known)
	writes := make([]Write, 0, 5)
	for range 1 + p.rand.IntN(5) {
		name := fmt.Sprint(p.rand.IntN(20))
		if slices.ContainsFunc(writes, func(w Write) bool { return w.Name == name }) {
			continue
		}
		_, revision, _ := p.term.Load(p.t.Context(), name)
		w := Write{Name: name, Revision: revision}
		if delete(next, name); p.rand.IntN(3) > 0 {
			w.Value = bytes.Repeat([]byte{byte(p.rand.IntN(3))}, p.rand.IntN(100))
			next[name] = string(w.Value)
		}
		writes = append(writes, w)
	}
	if p.rand.IntN(10) == 0 {
		writes[0].Revision++
		if _, err := p.term.Store(p.t.Context(), writes); !errors.Is(err, ErrConflict) {
			p.t.Fatalf("at another revision: %v", err)
		}
		return
	}
	if _, err := p.term.Store(p.t.Context(), writes); err != nil {
		p.unknown = append(p.unknown, next)
		time.Sleep(fileRetry)
		next = p.known
	} else {
		p.known, p.unknown = next, nil
		p.written++
	}
	if got := said(p.t, p.term); !maps.Equal(got, next) {
		p.t.Fatalf("there is %v, want %v", got, next)
	}
}

var seededFile = flag.Uint64("file", 0, "the seed of a history of a file to be played alone")

// TestFileSurvives: writes, syncs and renames fail at random, the disk fills up, the process dies and the machine loses its power, also
// while the file is written anew. What was stored is there, each call of Store as a whole or not at all.
func TestFileSurvives(t *testing.T) {
	first, rounds := rand.Uint64(), uint64(150)
	if *seededFile != 0 {
		first, rounds = *seededFile, 1
	}
	written := 0
	for seed := first; seed < first+rounds; seed++ {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { written += survives(t, rand.New(rand.NewPCG(seed, 11))) })
		}) {
			return
		}
	}
	if *seededFile == 0 && written < 1000 {
		t.Errorf("only %d writes have succeeded", written)
	}
}

func survives(t *testing.T, r *rand.Rand) int {
	t.Helper()
	p := &playedFile{t: t, rand: r, disk: newTestDisk(r), known: map[string]string{}}
	for range 8 {
		p.begin()
		p.disk.mu.Lock()
		p.disk.fails = []int{0, 2, 20}[r.IntN(3)]
		if r.IntN(4) == 0 {
			p.disk.room = p.disk.used() + r.IntN(1000)
		}
		p.disk.mu.Unlock()
		for range r.IntN(40) {
			if r.IntN(10) == 0 { // it is too long
				p.file.size += 1 << 30
			}
			p.store()
		}
		if r.IntN(2) == 0 { // in the middle of something
			p.disk.mu.Lock()
			p.disk.fails = 50
			p.disk.mu.Unlock()
			p.store()
		}
		p.disk.mu.Lock()
		p.disk.dead = true
		p.disk.mu.Unlock()
		_ = p.file.Close()
		p.disk.crash()
	}
	return p.written
}

// stored is a file of some writes: its bytes, where each frame ends, and what its records are then.
func stored(t *testing.T, records int) (data []byte, ends []int, states []map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits")
	f, term := open(t, path, nil)
	note := func() {
		ends, states = append(ends, int(f.size)), append(states, said(t, term))
	}
	note()
	for i := range records {
		name := fmt.Sprint(i % 3)
		_, revision, _ := term.Load(t.Context(), name)
		w := Write{Name: name, Value: []byte(strings.Repeat("v", i)), Revision: revision}
		if i%4 == 3 {
			w.Value = nil
		}
		if _, err := term.Store(t.Context(), []Write{w}); err != nil {
			t.Fatal(err)
		}
		note()
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) != ends[len(ends)-1] {
		t.Fatalf("%d bytes, want %d (%v)", len(data), ends[len(ends)-1], err)
	}
	return data, ends, states
}

// TestTornWrite: a file that ends in the middle of its last write, with or without zeros behind it, is what it was before that write,
// and goes on from there.
func TestTornWrite(t *testing.T) {
	data, ends, states := stored(t, 6)
	for zeros := range 2 {
		for cut := ends[0]; cut <= len(data); cut++ {
			d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
			torn := append(slices.Clone(data[:cut]), make([]byte, zeros*4096)...)
			d.names["limits"] = &testFile{disk: d, data: torn, synced: len(torn)}
			f, term := open(t, "limits", d)
			whole := 0
			for whole+1 < len(ends) && ends[whole+1] <= cut {
				whole++
			}
			if got := said(t, term); !maps.Equal(got, states[whole]) {
				t.Fatalf("cut off at %d: %v, want %v", cut, got, states[whole])
			}
			if _, err := term.Store(t.Context(), []Write{{Name: "next", Value: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			_, term = open(t, "limits", d)
			if v, _, _ := term.Load(t.Context(), "next"); string(v) != "1" {
				t.Fatalf("cut off at %d: %q was written", cut, v)
			}
		}
	}
}

// TestCutStart: a file that lacks something of what it began with was not left so by a crash.
func TestCutStart(t *testing.T) {
	f, term := open(t, filepath.Join(t.TempDir(), "limits"), nil)
	if _, err := term.Store(t.Context(), []Write{{Name: "a", Value: []byte("1")}, {Name: "b", Value: []byte("2")}}); err != nil {
		t.Fatal(err)
	}
	if err := f.rewrite(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range data {
		if _, _, _, err := readContents(bytes.NewReader(data[:cut])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut off at %d of %d: %v", cut, len(data), err)
		}
	}
}

// TestFlippedBit: a file of which any bit has changed is refused, with its name and what to do, and stays as it is.
func TestFlippedBit(t *testing.T) {
	data, _, _ := stored(t, 6)
	for bit := range 8 * len(data) {
		changed := slices.Clone(data)
		changed[bit/8] ^= 1 << (bit % 8)
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		d.names["limits"] = &testFile{disk: d, data: changed, synced: len(changed)}
		_, err := OpenFile("limits", FileOptions{disk: d})
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		for _, want := range []string{"limits", "at byte", "restore it, or remove it"} {
			if !strings.Contains(err.Error(), want) {
				t.Fatalf("bit %d: %q lacks %q", bit, err, want)
			}
		}
		if !bytes.Equal(d.names["limits"].data, changed) {
			t.Fatalf("bit %d: the file was written", bit)
		}
	}
}

// TestMissingFrame: a file that lacks a frame in its middle, has one twice, or has two in another order, is refused.
func TestMissingFrame(t *testing.T) {
	data, ends, _ := stored(t, 6)
	frame := func(i int) []byte { return data[ends[i]:ends[i+1]] }
	join := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{data[:ends[1]]}, parts...), nil) }
	for name, changed := range map[string][]byte{
		"missing": join(frame(2), frame(3)), "twice": join(frame(1), frame(1), frame(2)), "swapped": join(frame(2), frame(1)),
		"a start": join(data[len(fileHead):ends[0]]),
	} {
		if _, _, _, err := readContents(bytes.NewReader(changed)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFileIsWrittenAnew: a file does not grow with what is written to the same names, and nothing is lost when it is written anew.
func TestFileIsWrittenAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	f, term := open(t, path, nil)
	value := bytes.Repeat([]byte("x"), 100_000)
	for range 100 {
		_, revision, _ := term.Load(t.Context(), "a")
		if _, err := term.Store(t.Context(), []Write{{Name: "a", Value: value, Revision: revision}}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() > fileSlack+4*int64(len(value)) || info.Size() != f.size {
			t.Fatalf("it has %d bytes (%v), and %d are known", info.Size(), err, f.size)
		}
	}
	_ = f.Close()
	_, term = open(t, path, nil)
	if v, revision, _ := term.Load(t.Context(), "a"); !bytes.Equal(v, value) || revision != 100 {
		t.Errorf("%d bytes of revision %d", len(v), revision)
	}
}

func namesOf(all []Named) (names []string) {
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names
}
