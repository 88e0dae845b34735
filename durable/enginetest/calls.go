package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/durable"
)

// store writes what must be written. Of a server that has lost its leader it is not known whether it was: then it is written
// again, unless that says that it is there.
func (t test) store(term durable.Term, writes ...durable.Write) int64 {
	t.Helper()
	revision, err := term.Store(t.Context(), writes)
	known := func() bool {
		return t.c.Virtual || err == nil || errors.Is(err, durable.ErrDeposed) || errors.Is(err, durable.ErrConflict) ||
			errors.Is(err, durable.ErrTooLarge)
	}
	for end := time.Now().Add(patience); !known() && time.Now().Before(end); {
		t.Logf("it is not known whether it was written: %v", err)
		if revision, err = term.Store(t.Context(), writes); errors.Is(err, durable.ErrConflict) {
			revision, err = t.there(term, writes)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// there is the revision of records that were written, or an error that does not say whether they were.
func (t test) there(term durable.Term, writes []durable.Write) (revision int64, err error) {
	for _, w := range writes {
		value, r, err := term.Load(t.Context(), w.Name)
		switch {
		case err != nil:
			return 0, fmt.Errorf("looking whether it is there: %w", err)
		case w.Value == nil:
		case !bytes.Equal(value, w.Value):
			return 0, durable.ErrConflict
		default:
			revision = r
		}
	}
	return revision, nil
}

// read reads again where a server fails, which may elect a leader just now.
func read[T any](t test, f func() (T, error)) (T, error) {
	t.Helper()
	v, err := f()
	for end := time.Now().Add(patience); err != nil && !t.c.Virtual && !errors.Is(err, durable.ErrDeposed) && time.Now().Before(end); {
		t.Logf("it was not read: %v", err)
		v, err = f()
	}
	return v, err
}

func (t test) page(term durable.Term, prefix, after string, most int) ([]durable.Named, error) {
	t.Helper()
	return read(t, func() ([]durable.Named, error) { return term.Page(t.Context(), prefix, after, most) })
}

func (t test) list(term durable.Term, prefix string, most int) ([]durable.Named, error) {
	t.Helper()
	return read(t, func() ([]durable.Named, error) { return term.List(t.Context(), prefix, most) })
}

func (t test) load(term durable.Term, name string) (durable.Named, error) {
	t.Helper()
	return read(t, func() (durable.Named, error) {
		value, revision, err := term.Load(t.Context(), name)
		return durable.Named{Name: name, Value: value, Revision: revision}, err
	})
}

// refused is why a write is refused, nil if it is not. It is made again where it is not known whether it was.
func (t test) refused(term durable.Term, writes ...durable.Write) (err error) {
	t.Helper()
	_, unknown := read(t, func() (struct{}, error) {
		if _, err = term.Store(t.Context(), writes); errors.Is(err, durable.ErrConflict) {
			return struct{}{}, nil
		}
		return struct{}{}, err
	})
	if unknown != nil {
		return unknown
	}
	return err
}

func (t test) holds(term durable.Term, name, value string, revision int64) {
	t.Helper()
	got, err := t.load(term, name)
	if err != nil || string(got.Value) != value || got.Revision != revision {
		t.Errorf("%.40q is %.40q of revision %d (%v), want %.40q of %d", name, got.Value, got.Revision, err, value, revision)
	}
}

func write(name, value string, revision int64) durable.Write {
	return durable.Write{Name: name, Value: []byte(value), Revision: revision}
}
