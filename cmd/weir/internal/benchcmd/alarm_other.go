//go:build !linux

package benchcmd

// newAlarm answers what waits as precisely as the runtime of Go does.
func newAlarm() sleeper { return sleeper{} }
