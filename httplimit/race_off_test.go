//go:build !race

package httplimit_test

// raceEnabled tells that the race detector is on, under which a sync.Pool forgets at random.
const raceEnabled = false
