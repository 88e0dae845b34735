// Package resp is the protocol that Redis speaks, in its versions 2 and 3, for a server: [Parser] reads commands, [Writer] writes
// replies. Whatever comes from the other side is bounded, and nothing here allocates for a command or a reply once its buffers
// have grown. Package respclient is the other side.
package resp
