package replay

import (
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// report is what a replay found, in the form of --json.
type report struct {
	Limit string   `json:"limit"`
	Burst int64    `json:"burst"`
	By    string   `json:"by"`
	Files []string `json:"files"`

	// Complete is false if the replay ended early, for the reason in Error.
	Complete bool   `json:"complete"`
	Error    string `json:"error,omitempty"`

	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Admitted  int64 `json:"admitted"`
	Refused   int64 `json:"refused"`
	TableFull int64 `json:"table_full"`
	Malformed int64 `json:"malformed"`
	Reordered int64 `json:"reordered"`
	// Late counts those of them that were taken at the time of a later one.
	Late int64 `json:"late"`
	// FurthestReordered is by how many seconds a request was late at most.
	FurthestReordered float64 `json:"furthest_reordered"`

	// Keys is how many keys there were, more than that if KeysExact is false. RefusedKeys is how many were refused.
	Keys        int64 `json:"keys"`
	KeysExact   bool  `json:"keys_exact"`
	RefusedKeys int   `json:"refused_keys"`

	// First and Last are the times of the log, and Span the seconds between them.
	First *time.Time `json:"first"`
	Last  *time.Time `json:"last"`
	Span  float64    `json:"span"`

	// PeakWindow is the seconds of the windows in which the peaks of Top are counted.
	PeakWindow     float64         `json:"peak_window"`
	Top            []topKey        `json:"top"`
	Timeline       *timelineReport `json:"timeline"`
	MalformedLines []malformedLine `json:"malformed_lines"`

	times *timeline // of which Timeline is made; nil without a request
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

// malformedLine is a line that is no request.
type malformedLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// timelineSteps is how many steps the timeline has at most: with its labels it fits 80 columns.
const timelineSteps = 64

// report is t in at most that many steps.
func (t *timeline) report(most int) *timelineReport {
	steps, start, width := t.fit(most)
	r := &timelineReport{Start: at(start), Step: width.Seconds()}
	for _, step := range steps {
		r.Requests = append(r.Requests, step.requests)
		r.Refused = append(r.Refused, step.refused)
	}
	return r
}

// newReport returns a report without what the files say about lines.
func newReport(s *simulation, l *flags.Limit, top int) *report {
	r := &report{
		Limit: l.EffectiveRate().String(), Burst: l.EffectiveBurst(), By: l.By.String(), Complete: true,
		Requests: s.result.requests, Admitted: s.result.requests - s.result.refused, Refused: s.result.refused,
		TableFull: s.result.tableFull, Reordered: s.sequence.reordered, Late: s.result.late,
		FurthestReordered: s.sequence.furthest.Seconds(),
		Keys:              s.keys.seen, KeysExact: !s.keys.dropped, PeakWindow: s.keys.window.Seconds(),
		Top: []topKey{}, MalformedLines: []malformedLine{},
	}
	if s.keys.dropped {
		r.Keys = int64(s.keys.room)
	}
	if r.Requests == 0 {
		return r
	}
	first, last := at(s.first), at(s.latest)
	r.First, r.Last, r.Span = &first, &last, last.Sub(first).Seconds()
	keys, refused := s.keys.top(top)
	r.RefusedKeys = refused
	for _, k := range keys {
		r.Top = append(r.Top, topKey{
			Key: valid(k.key), Requests: k.requests, Refused: k.refused, FirstRefused: at(k.firstRefused),
			LastRefused: at(k.lastRefused), WorstRetryAfter: k.worstWait.Seconds(), Peak: k.peak,
		})
	}
	r.times = &s.timeline
	r.Timeline = r.times.report(timelineSteps)
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
