package bench

import (
	"errors"
	"fmt"
	"slices"
)

// Row is one line of work that weir, its peers and one or more floors all do.
type Row struct {
	Name       string
	Goroutines int
	// Refused tells that every call must be refused. Otherwise every call must be granted. Floors are not asked.
	Refused bool
	// Floors are what weir is compared with.
	Floors []Floor
	Ours   Subject
	Peers  []Subject
	// NoPeer says why there are no peers.
	NoPeer string
	// How says what is measured.
	How string
	// Most is how many nanoseconds a call of weir may take, 0 if that is not promised.
	Most float64
}

// Floor is what weir is compared with: the least work possible, or another call of weir.
type Floor struct {
	Subject

	// Target is the most that weir may take relative to the floor, 0 if nothing was promised.
	Target float64
}

// called is the subject under another name, for a call of weir that stands in for a floor.
func called(name string, s Subject) Subject {
	s.By = name
	return s
}

// asFast is a peer of the row in place of a floor: its measurements are those that it has as a peer.
func asFast(peer string, target float64) Floor { return Floor{Subject{By: peer}, target} }

// check says what is missing.
func (r Row) check() error {
	if r.Name == "" || r.How == "" || r.Goroutines < 1 || r.Ours.New == nil {
		return errors.New("bench: a row needs a name, a number of goroutines, something to measure and what that is")
	}
	if len(r.Floors) == 0 {
		return fmt.Errorf("bench: row %q has no floor", r.Name)
	}
	if (len(r.Peers) == 0) != (r.NoPeer != "") {
		return fmt.Errorf("bench: row %q must have a peer or say why it has none", r.Name)
	}
	return nil
}

// subjects are all that take turns: weir, the floors and the peers.
func (r Row) subjects() []Subject {
	all := []Subject{r.Ours}
	for _, f := range r.Floors {
		if !r.hasPeer(f.By) {
			all = append(all, f.Subject)
		}
	}
	return append(all, r.Peers...)
}

// hasPeer reports whether there is a peer of that name.
func (r Row) hasPeer(by string) bool {
	return slices.ContainsFunc(r.Peers, func(s Subject) bool { return s.By == by })
}

// isFloor reports whether the i-th subject is one, and isPeer whether it is one of these.
func (r Row) isFloor(i int) bool { return i > 0 && !r.isPeer(i) }
func (r Row) isPeer(i int) bool  { return i >= len(r.subjects())-len(r.Peers) }

// ID names the row for a command line: its name and, if there are several, its goroutines.
func (r Row) ID() string {
	if r.Goroutines == 1 {
		return r.Name
	}
	return fmt.Sprintf("%s x%d", r.Name, r.Goroutines)
}

// verify fails if the calls of a measurement were not answered as the row expects: then it measured something else.
func (r Row) verify(s Subject, m sample) error {
	want, answer := m.calls, "granted"
	if r.Refused {
		want, answer = 0, "refused"
	}
	if m.granted != want {
		return fmt.Errorf("bench: row %q: %s granted %d of %d calls of %s, but all should have been %s: "+
			"the row does not measure what it says (a shorter time per measurement may help)",
			r.ID(), s.By, m.granted, m.calls, s.Call, answer)
	}
	return nil
}

// Rows are all rows, in the order of the table.
func Rows() []Row { return slices.Concat(bucketRows(), leaseRows(), otherRows()) }
