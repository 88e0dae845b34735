//go:build !race

package weirotel_test

// raceDetector tells whether the race detector is on, which allocates.
const raceDetector = false
