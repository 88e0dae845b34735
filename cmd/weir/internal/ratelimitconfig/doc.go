// Package ratelimitconfig reads the configuration of envoyproxy/ratelimit: files of domains, descriptors and limits. They become
// policies, and a tree that finds the policy and the key of a descriptor.
//
// [Parse] returns a [Config], which never changes; [Config.Match] looks a descriptor up. A request of several descriptors is
// matched one by one, then [Replace] drops the limits that others of the same request replace.
package ratelimitconfig
