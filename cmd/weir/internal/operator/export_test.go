package operator

// WritePolicies writes the table of policies.
var WritePolicies = policies.write

// WriteOverview writes the state of a server.
var WriteOverview = writeOverview

// WriteReplicas writes the state of the servers that share limits.
var WriteReplicas = writeReplicas
