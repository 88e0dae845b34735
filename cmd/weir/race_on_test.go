//go:build race

package main_test

// raceDetector tells whether the tests, and then the program too, run with the race detector.
const raceDetector = true
