//go:build race

package weir_test

const underRace = true
