// Package admin is what the admin API of weir serve and those who ask it have in common: paths, the form of what is said, and a
// client. All durations are in seconds; -1 stands for never.
package admin
