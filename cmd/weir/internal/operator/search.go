package operator

// Search is what a server knows of a word: the address of a client, a network, or a value of requests such as a user or a key of
// an API.
type Search struct {
	// Word is the word as it was given, spelled as keys are, and Address the address or network that it was read as, "" if it is
	// none.
	Word    string `json:"word"`
	Address string `json:"address,omitempty"`
	// Keys are those that were found, at most 256: those that are locked out or refused first, those that nothing is kept of
	// last. More is how many were left out.
	Keys []FoundKey `json:"keys"`
	More int        `json:"more"`
	// Unsearched are the policies of which there may be keys of the word that were not found. Policies is how many policies there
	// are.
	Unsearched []Unsearched `json:"unsearched"`
	Policies   int          `json:"policies"`
	// Refusals are the last ones that name the word, as the client, in a key, or in the path or host.
	Refusals Refusals `json:"refusals"`
	// Others tells that there are other servers, which know of limits that they keep themselves what is not in it.
	Others bool `json:"others"`
}

// FoundKey is a key that a word leads to.
type FoundKey struct {
	Key

	// How is how it does: "key" for a key that is the word, "made" for the one that the policy makes of it, "part" for one that
	// has it as a part, "all" for the one that all requests share, "refused" for that of a refusal which names it.
	How string `json:"how"`
	// Mode is that of the policy: "shadow" refuses nothing. Kept is where its limits are: "local" for this server alone, or
	// "coherent", "leased", "optimistic" or "cluster".
	Mode string `json:"mode"`
	Kept string `json:"kept"`
	// Error is why the state is not known, "" if it is.
	Error string `json:"error,omitempty"`
}

// Known reports whether anything is kept of the key, or may be.
func (k *FoundKey) Known() bool {
	if k.Error != "" || k.LockedFor != 0 || k.Override != nil {
		return true
	}
	for i := range k.Limits {
		if l := &k.Limits[i]; l.Tracked || l.Refused > 0 || l.Waiters > 0 {
			return true
		}
	}
	return false
}

// Refuses reports whether the next request of the key is refused, as far as that is known.
func (k *FoundKey) Refuses() bool {
	if k.Mode != "enforce" {
		return false
	}
	if k.LockedFor != 0 {
		return true
	}
	for i := range k.Limits {
		if !k.Limits[i].Allowed {
			return true
		}
	}
	return false
}

// Unsearched is a policy of which there may be keys of a word that were not found.
type Unsearched struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}
