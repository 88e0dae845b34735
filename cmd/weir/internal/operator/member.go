package operator

// Member is a node of the cluster that owns the policies of durability cluster.
type Member struct {
	// ID is what the cluster knows the node by, in hexadecimal. One that is removed and added again gets another one.
	ID   string `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
	// Started says that the node has been started, Votes that it counts for a majority, and Leads that it leads the others.
	Started bool `json:"started"`
	Votes   bool `json:"votes"`
	Leads   bool `json:"leads"`
}

// MemberChange removes a node from the cluster, or adds one.
type MemberChange struct {
	Name string `json:"name"`
	// URL is that of the node in "peers", for one that is added.
	URL    string `json:"url,omitempty"`
	Reason string `json:"reason,omitempty"` // at most 1024 bytes
}
