// Package resp is the protocol that Redis speaks, in its versions 2 and 3, for both sides: [Parser] and [Writer] for a server,
// [AppendCommand] and [ReplyReader] for a client. Whatever comes from the other side is bounded, and nothing here allocates for
// a command or a reply once its buffers have grown.
package resp
