package weir

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// noted is a limiter that notes when its leases end. It has no pointer to a limiter of this package, so a chain takes it for
// one of another package if it is asked to.
type noted struct {
	*Limiter
}

type notedSettler struct {
	settler

	name string
	log  *[]string
}

func (s notedSettler) settle(c *claim, how settlement, actual int64) {
	*s.log = append(*s.log, s.name)
	s.settler.settle(c, how, actual)
}

// TestChainEndsItsLeasesInReverse has chains of limiters of its own, of others, and of both, in which all that was acquired is ended
// in reverse order.
func TestChainEndsItsLeasesInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		var own, foreign []Acquirer
		for _, name := range []string{"a", "b", "c", "d"} {
			w, err := New(SlidingWindow(PerSecond(5), 0), Options{Name: name, QueueLimit: 5})
			if err != nil {
				t.Fatal(err)
			}
			w.owner = notedSettler{w.owner, name, &log}
			own, foreign = append(own, w), append(foreign, noted{w})
		}
		inner, err := NewChain(own[1], foreign[2])
		if err != nil {
			t.Fatal(err)
		}
		for name, limiters := range map[string][]Acquirer{
			"own":     own,
			"foreign": foreign,
			"mixed":   {own[0], foreign[1], foreign[2], own[3]},
			"nested":  {foreign[0], inner, own[3]},
		} {
			c, err := NewChain(limiters...)
			if err != nil {
				t.Fatal(err)
			}
			for how, reserve := range map[string]func() (Lease, error){
				"try": func() (Lease, error) { return c.TryReserve(1), nil },
				"wait": func() (Lease, error) {
					own[3].TryAcquire(5)
					return c.Reserve(context.Background(), 1)
				},
			} {
				time.Sleep(time.Minute)
				l, err := reserve()
				if err != nil || !l.Allowed() {
					t.Fatalf("%s, %s: %+v, %v", name, how, l.Decision(), err)
				}
				log = nil
				l.Cancel()
				if want := []string{"d", "c", "b", "a"}; !slices.Equal(log, want) {
					t.Errorf("%s, %s: ended in the order %v, want %v", name, how, log, want)
				}
			}
		}
	})
}
