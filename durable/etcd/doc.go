// Package etcd is what a cluster agrees by: an etcd server in this process, by itself or together with those of other processes, or a
// cluster of etcd that exists already.
package etcd
