package replay

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"
)

// replayed is what a report says of the log, and of how far it was read.
type replayed struct {
	Files []string `json:"files"`

	// Complete is false if the replay ended early, for the reason in Error.
	Complete bool   `json:"complete"`
	Error    string `json:"error,omitempty"`

	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Malformed int64 `json:"malformed"`
	Reordered int64 `json:"reordered"`
	// Late counts those of them that were taken at the time of a later one.
	Late int64 `json:"late"`
	// FurthestReordered is by how many seconds a request was late at most.
	FurthestReordered float64 `json:"furthest_reordered"`

	// First and Last are the times of the log, and Span the seconds between them.
	First *time.Time `json:"first"`
	Last  *time.Time `json:"last"`
	Span  float64    `json:"span"`

	MalformedLines []malformedLine `json:"malformed_lines"`
}

// malformedLine is a line that is no request.
type malformedLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// replayed returns what is known without the files.
func (c *comparison) replayed() replayed {
	r := replayed{
		Complete: true, Reordered: c.sequence.reordered, Late: c.late, FurthestReordered: c.sequence.furthest.Seconds(),
		MalformedLines: []malformedLine{},
	}
	if len(c.trials) > 0 {
		r.Requests = c.trials[0].total.requests
	}
	if c.begun {
		first, last := at(c.first), at(c.last)
		r.First, r.Last, r.Span = &first, &last, last.Sub(first).Seconds()
	}
	return r
}

// read adds what the files say about lines, and how a replay ended.
func (r *replayed) read(files []string, lines *lineCounts, failed error) {
	r.Files, r.Lines, r.Malformed = files, lines.lines, lines.malformed
	r.MalformedLines = append(r.MalformedLines, lines.examples...)
	switch r.Complete = failed == nil; {
	case r.Complete:
	case errors.Is(failed, context.Canceled):
		r.Error = "interrupted"
	default:
		r.Error = failed.Error()
	}
}

// limitReport is what a replay through one limit found, in the form of --json.
type limitReport struct {
	Limit     string `json:"limit"`
	Burst     int64  `json:"burst"`
	By        string `json:"by"`
	*replayed        //nolint:embeddedstructfieldcheck // it follows what it is about, as in JSON

	Allowed   int64 `json:"allowed"`
	Refused   int64 `json:"refused"`
	TableFull int64 `json:"table_full"`

	// Keys is how many keys there were, more than that if KeysExact is false. RefusedKeys is how many were refused.
	Keys        int64 `json:"keys"`
	KeysExact   bool  `json:"keys_exact"`
	RefusedKeys int   `json:"refused_keys"`

	// PeakWindow is the seconds of the windows in which the peaks of Top are counted.
	PeakWindow float64         `json:"peak_window"`
	Top        []topKey        `json:"top"`
	Timeline   *timelineReport `json:"timeline"`

	of *comparisonReport
}

// topKey is a key that was refused.
type topKey struct {
	Key          string    `json:"key"`
	Requests     int64     `json:"requests"`
	Refused      int64     `json:"refused"`
	FirstRefused time.Time `json:"first_refused"`
	LastRefused  time.Time `json:"last_refused"`
	// WorstRetryAfter is the longest wait in seconds that a refused request was told.
	WorstRetryAfter float64 `json:"worst_retry_after"`
	Peak            int64   `json:"peak"`
}

// timelineReport counts requests and refusals in steps of time.
type timelineReport struct {
	Start    time.Time `json:"start"`
	Step     float64   `json:"step"`
	Requests []int64   `json:"requests"`
	Refused  []int64   `json:"refused"`
}

// timelineSteps is how many steps the timeline has at most: with its labels it fits 80 columns.
const timelineSteps = 64

// report returns a report without what the files say about lines, with so many keys. It may be called once finish has returned.
func (c *comparison) report(top int) report { //nolint:ireturn // there are two
	if c.keys == nil {
		return c.compared(top)
	}
	l, all := c.configurations[0].limit, c.compared(0)
	r := &limitReport{
		Limit: l.EffectiveRate().String(), Burst: l.EffectiveBurst(), By: l.By.String(), replayed: &all.replayed,
		Allowed: all.All.Config.Allowed, Refused: all.All.Config.Refused, TableFull: c.keys.full,
		Keys: c.keys.seen, KeysExact: !c.keys.dropped, PeakWindow: c.keys.window.Seconds(), Top: []topKey{}, of: all,
	}
	if c.keys.dropped {
		r.Keys = int64(c.keys.room)
	}
	keys, refused := c.keys.top(top)
	r.RefusedKeys = refused
	for _, k := range keys {
		r.Top = append(r.Top, topKey{
			Key: valid(k.key), Requests: k.counts.requests, Refused: k.counts.refused,
			FirstRefused: at(k.counts.firstRefused), LastRefused: at(k.counts.lastRefused),
			WorstRetryAfter: k.counts.worstWait.Seconds(), Peak: k.counts.peak,
		})
	}
	for _, course := range c.courses(timelineSteps) {
		r.Timeline = &timelineReport{Start: at(course.start), Step: course.width.Seconds()}
		r.Timeline.Requests, r.Timeline.Refused = course.counts(-1)
	}
	return r
}

// at is a time in nanoseconds since 1970.
func at(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// valid is key as it is if it is UTF-8, otherwise with escapes: JSON cannot tell other bytes apart.
func valid(key string) string {
	if utf8.ValidString(key) {
		return key
	}
	return printable(key)
}
