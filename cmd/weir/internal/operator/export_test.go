package operator

// WritePolicies writes the table of policies.
var WritePolicies = policies.write

// WriteReplicas writes the state of the servers that share limits.
var WriteReplicas = writeReplicas
