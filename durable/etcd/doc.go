// Package etcd is how a cluster of durable limits agrees: an etcd server in this process, by itself or together with those of
// other processes, or a cluster of etcd that exists already. [Join] starts all that a node needs.
//
// # How long requests are refused
//
// An owner that ends hands over at once. After one that dies, the next owner is there in 1 to 1.5 s: its lease ends after TTL, 1
// s, and etcd looks for ended leases every 0.5 s. If the leader of etcd dies at the same time, it takes 2 to 3 s; so a server
// whose node becomes the owner hands the lead to another one. Meanwhile requests end as Unavailable, or ask the next owner; none
// waits for one that is gone.
//
// A server with the default ticks of etcd has no lease of less than 2 s. So an existing cluster takes 2 to 2.5 s, unless it runs
// with --heartbeat-interval=50 --election-timeout=500.
//
// # An existing cluster
//
// It needs a user that may read and write below Prefix, and no other rights. As every write is a new revision, it must drop old
// ones, by --auto-compaction-mode=periodic --auto-compaction-retention=1m or the like: 5,000 writes a second of 300 bytes are 90
// MB a minute. Its quota must have room for that, twice, and for the records.
//
// # What can be lost
//
// A request is allowed when etcd has it on the disk of a majority of its nodes, with fsync. It can still be lost, so that its
// permits are available again:
//
//   - with one node, when its disk is lost, or goes back to a backup or a snapshot. While the node is away nothing is allowed.
//   - with three nodes, when the disks of two of them are lost at once. One can be away without harm; while two are, nothing is
//     allowed.
//   - with an existing cluster, as its operator has chosen. A server with --unsafe-no-fsync, or on a disk that does not do fsync,
//     loses what a power failure takes. Restoring it from a snapshot loses what was allowed since.
//   - with UnsafeNoFsync, what was in the page cache of a machine that has lost power. A process that dies loses nothing.
package etcd
