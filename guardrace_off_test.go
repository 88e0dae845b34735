//go:build !race

package weir_test

const guardUnderRace = false
