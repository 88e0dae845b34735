package queue_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/internal/queue"
)

func TestEmptyQueue(t *testing.T) {
	var q queue.Queue[int]
	if q.Len() != 0 || q.Permits() != 0 || q.Front() != nil || q.Oldest() != nil || q.Newest() != nil {
		t.Errorf("%+v", q)
	}
}

func TestFrontIsTheOldestOrTheNewest(t *testing.T) {
	for _, newest := range []bool{false, true} {
		q := queue.Queue[string]{NewestFirst: newest}
		for _, name := range []string{"a", "b", "c"} {
			q.Push(&queue.Waiter[string]{Value: name, Permits: 1})
		}
		var got []string
		for q.Front() != nil {
			got = append(got, q.Front().Value)
			q.Remove(q.Front())
		}
		want := []string{"a", "b", "c"}
		if newest {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("newest first %v: %v", newest, got)
		}
	}
}

// TestQueueEqualsASlice pushes and removes at random places, and compares all that can be seen with a slice.
func TestQueueEqualsASlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var (
		q        queue.Queue[int]
		model    []*queue.Waiter[int]
		spare    []*queue.Waiter[int] // have been in the queue, and may be again
		arrivals uint64
	)
	for step := range 20_000 {
		switch {
		case len(model) == 0 || rng.IntN(2) == 0 && len(model) < 50:
			w := &queue.Waiter[int]{}
			if len(spare) > 0 {
				w, spare = spare[0], spare[1:]
			}
			w.Value, w.Permits = step, rng.Int64N(5)
			q.Push(w)
			arrivals++
			if w.Arrival() != arrivals {
				t.Fatalf("step %d: arrival %d, want %d", step, w.Arrival(), arrivals)
			}
			model = append(model, w)
		default:
			i := rng.IntN(len(model))
			w := model[i]
			q.Remove(w)
			if w.Queued() || w.Newer() != nil || w.Older() != nil {
				t.Fatalf("step %d: who was removed is still linked", step)
			}
			model, spare = slices.Delete(model, i, i+1), append(spare, w)
		}
		compare(t, step, &q, model)
	}
}

func compare(t *testing.T, step int, q *queue.Queue[int], model []*queue.Waiter[int]) {
	t.Helper()
	var permits int64
	at := q.Oldest()
	for i, want := range model {
		if at != want || !at.Queued() {
			t.Fatalf("step %d: place %d is wrong", step, i)
		}
		permits += at.Permits
		if older := at.Older(); i > 0 && older != model[i-1] || i == 0 && older != nil {
			t.Fatalf("step %d: who is before place %d is wrong", step, i)
		}
		if i == len(model)-1 && q.Newest() != at {
			t.Fatalf("step %d: the newest is wrong", step)
		}
		at = at.Newer()
	}
	if at != nil || q.Len() != len(model) || q.Permits() != permits {
		t.Fatalf("step %d: %d waiters for %d permits, want %d for %d", step, q.Len(), q.Permits(), len(model), permits)
	}
}
