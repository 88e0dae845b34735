//go:build !race

package respapi

const underRace = false
