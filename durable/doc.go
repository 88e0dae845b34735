// Package durable grants permits that money depends on: one owner in a cluster holds the limits, every node asks it, and what it
// has granted survives its crash. See [Owner] for the trade between writes and what a crash burns, and [Engine] for what a
// cluster agrees by. One process alone needs no cluster: a [File] keeps its limits.
//
// Times of deadlines are durations until they reach the owner, and states are kept by the owner's clock in Unix time. A new
// owner whose clock is behind neither gives permits back nor keeps them from coming back later.
package durable
