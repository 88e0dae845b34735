// Package durable keeps limits that must survive a crash, such as quotas that money depends on. Other limits do not need it: they
// live in memory, or by package store in Redis.
//
// One owner in a cluster decides for every node, and what it has allowed survives its crash. [Owner] describes the trade between
// writes and what a crash loses, and [Engine] is how a cluster agrees on the owner. Join of package durable/etcd starts a node
// with everything it needs. One process alone needs no cluster: a [File] keeps its limits.
//
// Only the owner's clock counts, in Unix time; deadlines travel to it as durations. A new owner whose clock is behind neither
// gives permits back nor keeps them from coming back later.
package durable
