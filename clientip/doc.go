// Package clientip finds the client of a request, as a key to limit by: the address of the client behind the proxies that are
// trusted, cut to as many bits as make one client.
//
// A limit for each client is worth as much as its key: a client that can choose its key can be allowed any number of requests. So
// everything here asks whether the client itself could have written what is read.
//
//   - [Parse] reads an address in every form that peers and proxies use, and returns one form. Without it 192.0.2.1 and
//     ::ffff:192.0.2.1 would be two clients, and each port another one.
//   - [Prefixes] make one client of a network: the client of a /64 of IPv6 can use each of its 2^64 addresses.
//   - [Resolver] believes of X-Forwarded-For or Forwarded only what trusted proxies have written. By default it believes nothing:
//     the rest of these fields is written by the client.
//
// Nothing here allocates memory, except for the text of a key. The work is linear in the length of what is read.
package clientip
