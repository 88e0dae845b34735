//go:build race

package policy_test

const underRace = true
