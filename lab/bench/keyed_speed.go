package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	// KeyedTarget is the most that a call of Keyed may take relative to the table with a clock, which a call that decides by time
	// has to read before it knows what the next one asks for.
	KeyedTarget = 1.25
	// KeyedBatchTarget is the most that a key of a batch may take relative to the bare table, whose searches overlap as those
	// of a batch can.
	KeyedBatchTarget = 1.5
)

// keyedBatch is how many keys a batch has.
const keyedBatch = 64

// KeyedSize is what was measured of limiters that hold so many keys.
type KeyedSize struct {
	Keys   int           `json:"keys"`
	Rows   []RowResult   `json:"rows"`
	Memory []KeyedMemory `json:"memory,omitempty"`
	// Skipped are the subjects for which the machine had no memory.
	Skipped []string `json:"skipped,omitempty"`
}

// keyedLoad is which keys are asked for.
type keyedLoad struct {
	name, how string
	keys      keyArray
}

func keyedLoads(keys int) []keyedLoad {
	return []keyedLoad{
		{"uniform", "each key as often as any other", uniformKeys(keys)},
		{"zipf", "the k-th most frequent key as often as k^-1.1 says", zipfKeys(keys)},
	}
}

// repeated is a subject that asks an existing limiter for the keys of an array, from the beginning again at its end. Several
// goroutines ask for different parts of it.
func repeated(by, call string, keys []string, ask func(keys []string) int) Subject {
	cursor := new(atomic.Int64)
	return Subject{By: by, Call: call, New: func() (Loop, func()) {
		return func(n int) int {
			at := int(cursor.Add(batch)-batch) % len(keys)
			return ask(keys[at : at+n])
		}, nil
	}}
}

// count is a number of keys in short.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + "M"
	case n >= 1000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1e3, 'f', -1, 64) + "k"
	}
	return strconv.Itoa(n)
}

// keyedWork is which rows are measured of limiters that hold so many keys.
type keyedWork struct {
	keys    int
	budget  budget
	refused bool
	loads   []keyedLoad
	// collections is how many are measured of a limiter, 0 for none, and then its memory is not measured either.
	collections int
}

// keyedRow is a row, and the keys that are asked for in it.
type keyedRow struct {
	Row

	keys []string
}

// rows are the rows, without peers: these are measured one after the other, as not all of them find room at a time.
func (w keyedWork) rows(ours, planned keyedLimiter, table *bareTable) (rows []keyedRow) {
	for _, l := range w.loads {
		for _, goroutines := range []int{1, 2} {
			name, how := count(w.keys)+" keys, "+l.name, "Keys that are known: "+l.how+". Every call is granted."
			if w.refused {
				name, how = count(w.keys)+" keys, refuse", "Keys whose one permit a day was taken before: every call is refused."
			}
			if goroutines > 1 {
				how += " Two goroutines ask one limiter for different parts of the array."
			}
			bare := repeated(byTable, tableCall, l.keys.keys, table.limiter().ask)
			row := Row{
				Name: name, Goroutines: goroutines, Refused: w.refused, How: how, NoPeer: notYet,
				Ours: repeated(byWeir, keyedWeir().Call, l.keys.keys, ours.ask),
				Floors: []Floor{
					{repeated(byTableClock, clockCall, l.keys.keys, table.timed().ask), KeyedTarget}, {bare, 0},
				},
			}
			batches := row
			batches.Name += fmt.Sprintf(", batches of %d", keyedBatch)
			batches.How += " Each call asks for a batch of them."
			batches.NoPeer = "no peer decides about several keys at once"
			batches.Ours = repeated(byWeir, batchCall, l.keys.keys, planned.ask)
			batches.Floors = []Floor{{bare, KeyedBatchTarget}, {called("one by one", row.Ours), 0}}
			rows = append(rows, keyedRow{row, l.keys.keys}, keyedRow{batches, l.keys.keys})
		}
	}
	return rows
}

// notYet is said of rows whose peers come later.
const notYet = "not yet"

// filled returns a limiter that holds the keys, and what that costs. The limiter that is measured is alone on the heap but
// for what lay there before.
func (w keyedWork) filled(s keyedSubject) (keyedLimiter, KeyedMemory, error) {
	m := KeyedMemory{By: s.By}
	before := collected(w.collections)
	l := s.New(keyedOptions{budget: w.budget, keys: w.keys})
	granted := 0
	ownKeys(0, w.keys, func(keys []string) { granted += l.ask(keys) })
	if granted != w.keys {
		return l, m, fmt.Errorf("bench: %s granted %d of %d new keys their first permit, but all should have been granted",
			s.By, granted, w.keys)
	}
	m.between(before, collected(w.collections), w.keys)
	return l, m, nil
}

// measure measures weir and the floors in turns, and then each peer by itself.
func (w keyedWork) measure(ctx context.Context, set Settings) (size KeyedSize, err error) {
	size.Keys = w.keys
	rows, err := w.oursAndFloors(ctx, set, &size)
	if err != nil {
		return size, err
	}
	for _, s := range keyedPeers() {
		if free := availableMemory(); free < int64(w.keys)*bytesPerKeyAtMost {
			size.Skipped = append(size.Skipped, s.By)
			continue
		}
		if err := w.peer(ctx, set, s, rows, &size); err != nil {
			return size, err
		}
	}
	return size, nil
}

func (w keyedWork) oursAndFloors(ctx context.Context, set Settings, size *KeyedSize) ([]keyedRow, error) {
	before := collected(w.collections)
	table := newBareTable(w.keys)
	bare := table.limiter()
	ownKeys(0, w.keys, func(keys []string) { bare.ask(keys) })
	floor := KeyedMemory{By: byTable, Floor: true}
	floor.between(before, collected(w.collections), w.keys)
	ours, m, err := w.filled(keyedWeir())
	if err != nil {
		return nil, err
	}
	planned, _, err := w.filled(keyedPlanned())
	if err != nil {
		return nil, err
	}
	size.Memory = append(size.Memory, m, floor)
	rows := w.rows(ours, planned, table)
	for _, row := range rows {
		result, err := row.Measure(ctx, set)
		if err != nil {
			return nil, err
		}
		if row.NoPeer == notYet {
			result.NoPeer = ""
		}
		size.Rows = append(size.Rows, result)
	}
	ours.end()
	planned.end()
	return rows, nil
}

func (w keyedWork) peer(ctx context.Context, set Settings, s keyedSubject, rows []keyedRow, size *KeyedSize) error {
	l, m, err := w.filled(s)
	if err != nil {
		return err
	}
	defer l.end()
	size.Memory = append(size.Memory, m)
	for i, row := range rows {
		if row.NoPeer != notYet {
			continue
		}
		f, err := row.alone(ctx, set, repeated(s.By, s.Call, row.keys, l.ask))
		if err != nil {
			return err
		}
		size.Rows[i].Peers = append(size.Rows[i].Peers, f)
	}
	return nil
}

// end stops the limiter, if it has to be.
func (l keyedLimiter) end() {
	if l.stop != nil {
		l.stop()
	}
}

// alone measures a peer by itself, in as many rounds as the others.
func (r Row) alone(ctx context.Context, set Settings, s Subject) (Figure, error) {
	calls := calibrate(s, r.Goroutines, set.Time, set.Meet)
	var all series
	for range set.Count {
		if err := ctx.Err(); err != nil {
			return Figure{}, err
		}
		m := take(s, r.Goroutines, calls, set.Meet)
		if err := r.verify(s, m); err != nil {
			return Figure{}, err
		}
		all.add(m, false)
	}
	return all.figure(s), nil
}

// bytesPerKeyAtMost is how much memory must be available for each key before a peer is filled: more than any needs.
const bytesPerKeyAtMost = 500

// availableMemory is how many bytes the machine can give to programs, very many if that is not known.
func availableMemory() int64 {
	const unknown = 1 << 62
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return kb * 1024
			}
		}
	}
	return unknown
}
