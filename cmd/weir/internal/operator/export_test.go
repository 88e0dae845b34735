package operator

import "io"

// WritePolicies writes the table of policies.
var WritePolicies = policies.write

// WriteOverview writes the state of a server.
var WriteOverview = writeOverview

// WriteReplicas writes the state of the servers that share limits.
var WriteReplicas = writeReplicas

// WriteKeys writes the table of keys.
var WriteKeys = keys.write

// WriteAfterReset writes how a key is after its reset.
func WriteAfterReset(w io.Writer, k *Key) { (&outcome{key: k}).write(w, ResetPath) }
