//go:build !unix && !windows

package overload

// processTime is not known here.
func processTime() (int64, error) { return 0, ErrNoPressure }
