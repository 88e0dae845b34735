// Package etcd is what a cluster agrees by: an etcd server in this process, by itself or together with those of other processes,
// or a cluster of etcd that exists already. [Join] starts all that a node needs.
//
// # What can be lost
//
// A grant is answered when etcd has it on the disk of a majority of its nodes, with fsync. So it is lost
//
//   - with one node, when its disk is lost, or goes back to a backup or a snapshot: what was granted since then can be granted
//     again. While the node is away nothing is granted.
//   - with three nodes, when the disks of two of them are lost at once. One can be away without harm; while two are, nothing is
//     granted.
//   - with an existing cluster, as its operator has chosen: a server with --unsafe-no-fsync, or on a disk that lies about fsync,
//     loses what a power failure takes. Restoring it from a snapshot gives back what was granted since.
//   - with UnsafeNoFsync, whatever the page cache of a machine held that has lost power. A process that dies loses nothing.
//
// # How long nothing is granted
//
// An owner that ends hands over at once. One that dies is missed when its lease has ended, after TTL, 1 s; etcd looks for leases
// that have ended every 0.5 s. So the next owner is there 1 to 1.5 s later, as long as etcd has a leader. That is why a server
// whose node owns the limits gives the lead to another one: if both are lost at once a leader is elected first, within 0.5 to 1 s
// of silence, and lets all leases begin anew, with 0.5 s in addition, which makes 2 to 3 s.
//
// A server with the default ticks of etcd, 100 ms and 10 of them, has no lease of less than 2 s (one and a half elections, in
// whole seconds), so that an existing cluster takes 2 to 2.5 s, unless it runs with --heartbeat-interval=50
// --election-timeout=500. Whatever the TTL, no request waits for an owner that is gone: it is answered Unavailable, or asks the
// next one.
//
// # An existing cluster
//
// needs a user that may read and write below Prefix, and no other rights. As every write is a new revision, it must give up
// old ones, by --auto-compaction-mode=periodic --auto-compaction-retention=1m or the like: 5,000 writes a second of 300 bytes are
// 90 MB a minute. Its quota must have room for that, twice, and for the records.
package etcd
