//go:build race

package algo_test

const raceEnabled = true
