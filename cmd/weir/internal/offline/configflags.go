package offline

import (
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// moment is a flag value: a time.
type moment struct{ time.Time }

func (f *moment) String() string {
	if f.IsZero() {
		return ""
	}
	return f.Format(time.RFC3339Nano)
}

// Set takes a time with its zone.
func (f *moment) Set(s string) error {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2099 {
		return flags.Errorf("must be a time with its zone, such as 2026-11-21T10:00:00Z, from 1970 to 2099")
	}
	f.Time = t
	return nil
}

// Type is what help shows in place of a value.
func (*moment) Type() string { return "time" }
