package operator

// WritePolicies writes the table of policies.
var WritePolicies = policies.write
