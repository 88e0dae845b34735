//go:build race

package respapi

const underRace = true
