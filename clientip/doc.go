// Package clientip tells whom a request comes from, as a key to limit by: the address of the client, past the proxies that
// are trusted, and cut to as many bits as make one client.
//
// A limit for each client is worth as much as its key. A client that can choose the key has as many quotas as it likes, so
// everything here answers one question: who has written this, and could it be the client?
//
//   - [Parse] reads an address in every form in which peers and proxies write it, and answers one form. Otherwise
//     192.0.2.1 and ::ffff:192.0.2.1 would be two clients, and each port another one.
//   - [Prefixes] make one client of a network: whoever is assigned a /64 of IPv6 can use each of its 2^64 addresses.
//   - [Resolver] believes of X-Forwarded-For or Forwarded only what proxies have written that are trusted, and
//     nothing at all by default: the rest of these fields is written by the client.
//
// Nothing here allocates memory, but for the text of a key, and the work is linear in the length of what is read.
package clientip
