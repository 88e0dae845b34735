// Package ratelimitconfig reads the configuration of envoyproxy/ratelimit: files of domains, descriptors and limits. What
// they say becomes policies, and a tree that tells which of them a descriptor is counted by, under which key.
//
// [Parse] answers a [Config], which never changes; [Config.Match] looks a descriptor up. A request of several descriptors is
// matched one by one, then [Replace] drops the limits that others of the same request replace.
package ratelimitconfig
