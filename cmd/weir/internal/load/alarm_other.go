//go:build !linux

package load

// newAlarm returns what waits as precisely as the runtime of Go does.
func newAlarm() sleeper { return sleeper{} }
