// Package zones knows which time zones can be told by their names.
package zones

import "time"

// IsNamed reports whether the name of a zone says which it is: it is UTC, which nil is too, or one that [time.LoadLocation] finds
// by this name, as far as its clock shows this year.
func IsNamed(z *time.Location) bool {
	switch {
	case z == nil || z == time.UTC:
		return true
	case z == time.Local || z.String() == "": //nolint:gosmopolitan // it is another one elsewhere
		return false
	}
	loaded, err := time.LoadLocation(z.String())
	if err != nil || loaded == time.Local { //nolint:gosmopolitan // as above
		return false
	}
	const months = 12
	for m := range months {
		at := time.Now().AddDate(0, m, 0)
		_, a := at.In(z).Zone()
		if _, b := at.In(loaded).Zone(); a != b {
			return false
		}
	}
	return true
}
