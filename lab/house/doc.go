// Package house has the tests of what holds for the repository as a whole: which package may import which, which words its
// pages and comments use, where links lead, which tests stand behind a promise. They read files of all modules, which the go
// command does not see: run them with -count=1.
package house
