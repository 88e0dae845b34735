package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
)

// comparison runs a log through one configuration, or through two at the same time. Reading, putting in order, and each
// configuration have a goroutine of their own, which hand on batches of requests.
type comparison struct {
	configurations []configuration
	policies       []string // names of all policies, in the order of the sets
	fields         fields
	encoded        []byte

	reading   *batch // what is read, in the order of the log
	unordered chan *batch
	ordering  sync.WaitGroup

	sequence *sequence
	batch    *batch // what comes out of sequence
	err      error  // of making an engine

	begun       bool
	first, last int64
	late        int64
	withHost    bool // a request had one
	unnamed     int64

	trials     []*trial
	difference *difference // nil for one configuration
	keys       *limitKeys  // nil unless it is of one limit
	input      chan *batch
	done       sync.WaitGroup
}

// inFlight is how many batches wait between two steps of their way.
const inFlight = 8

func newComparison(configurations ...configuration) *comparison {
	c := &comparison{
		configurations: configurations, unordered: make(chan *batch, inFlight), batch: newBatch(), reading: newBatch(),
	}
	known := map[string]bool{}
	for _, one := range configurations {
		if one.limit != nil {
			c.keys = newLimitKeys(one.limit.MaxKeys, one.limit.EffectiveRate())
		}
		for i := range one.set.Policies {
			if name := one.set.Policies[i].Name; !known[name] {
				known[name] = true
				c.policies = append(c.policies, name)
			}
		}
	}
	c.fields = fieldsOf(configurations...)
	c.sequence = newSequence(c.take)
	c.ordering.Go(c.order)
	return c
}

// order puts in order what was read.
func (c *comparison) order() {
	for b := range c.unordered {
		start := uint32(0)
		for _, e := range b.entries {
			c.sequence.add(e.at, b.space[start:e.end])
			start = e.end
		}
		b.free()
	}
	c.sequence.drain()
}

// read takes a record.
func (c *comparison) read(rec *accesslog.Record) {
	c.withHost = c.withHost || len(rec.Host) > 0
	if !rec.Client.IsValid() {
		c.unnamed++
	}
	c.encoded = c.fields.appendRequest(c.encoded[:0], rec)
	c.reading.add(rec.Time, c.encoded)
	if c.reading.full() {
		c.unordered <- c.reading
		c.reading = newBatch()
	}
}

// take adds a request to the batch.
func (c *comparison) take(at int64, request []byte) {
	if !c.begun {
		c.begun, c.first, c.last = true, at, at
		c.err = c.start()
	}
	if at < c.last {
		c.late++
	}
	c.last = max(c.last, at)
	c.batch.add(at, request)
	if c.batch.full() {
		c.send()
	}
}

// start makes the engines, whose time begins with the first request, and starts the goroutines.
func (c *comparison) start() error {
	names := make(map[string]int, len(c.policies))
	for i, name := range c.policies {
		names[name] = i
	}
	for _, one := range c.configurations {
		t, err := newTrial(one, c.fields, names, c.first)
		if err != nil {
			c.trials = nil // there is nothing to compare
			return fmt.Errorf("%s: %w", one.name, err)
		}
		c.trials = append(c.trials, t)
	}
	c.input = make(chan *batch, inFlight)
	if len(c.trials) == 1 {
		c.stage(c.input, nil, c.trials[0], func(*batch) each { return c.countKey })
		return nil
	}
	c.difference = newDifference(len(c.policies))
	between := make(chan *batch, inFlight)
	c.stage(c.input, between, c.trials[0], (*batch).keep)
	c.stage(between, nil, c.trials[1], c.difference.compare)
	return nil
}

// countKey counts the key of the request that a limit has just decided on.
func (c *comparison) countKey(int, bool, []part, []byte) {
	if c.keys != nil {
		t := c.trials[0]
		c.keys.take(t.request.Named.Key, t.now, t.verdict.Decision())
	}
}

// stage starts a goroutine that runs the batches of in through t and hands them on to out, or frees them if that is nil.
func (c *comparison) stage(in <-chan *batch, out chan<- *batch, t *trial, f func(*batch) each) {
	c.done.Go(func() {
		for b := range in {
			t.run(b, f(b))
			if out != nil {
				out <- b
				continue
			}
			b.free()
		}
		if out != nil {
			close(out)
		}
	})
}

// send sends the batch on its way.
func (c *comparison) send() {
	if c.err != nil {
		c.batch.reset()
		return
	}
	c.batch.text = string(c.batch.space)
	c.input <- c.batch
	c.batch = newBatch()
}

// finish waits until all that was read has been decided. It must be called exactly once.
func (c *comparison) finish() error {
	c.unordered <- c.reading
	close(c.unordered)
	c.ordering.Wait()
	if c.input == nil {
		return c.err
	}
	if len(c.batch.entries) > 0 {
		c.send()
	}
	close(c.input)
	c.done.Wait()
	var errs []error
	for _, t := range c.trials {
		t.report = t.engine.Report()
		errs = append(errs, t.engine.Close())
	}
	return errors.Join(errs...)
}

// run reads all files and decides on their requests. What was read until an error counts.
func (c *comparison) run(ctx context.Context, lines *lineCounts, files []string, stdin io.Reader, b *bar) error {
	failed := lines.readAll(ctx, c.read, files, stdin, b)
	return errors.Join(failed, c.finish())
}
