// Package policies holds the named limits for which the fronts of the server answer: a front decodes a request, finds
// the policy here, and encodes its decision.
package policies

import (
	"fmt"

	"github.com/weirhq/weir"
)

// Policy is a limit with a name.
type Policy struct {
	// Name identifies the policy in requests: from 1 to 1024 printable ASCII characters.
	Name string
	// Limiter decides. Its Policy name is Name.
	Limiter *weir.Keyed[string]
}

// Set is some policies with different names. It does not change, and is safe for concurrent use.
type Set struct{ policies []Policy }

// NewSet answers a set of policies, or an error if a name is empty or occurs twice.
func NewSet(policies ...Policy) (*Set, error) {
	names := make(map[string]bool, len(policies))
	for i, p := range policies {
		if p.Name == "" || names[p.Name] {
			return nil, fmt.Errorf("weir: policy %d: name %.40q: must be different from all others and not empty", i, p.Name)
		}
		names[p.Name] = true
	}
	return &Set{policies}, nil
}

// All are the policies in their order. The slice must not be changed.
func (s *Set) All() []Policy { return s.policies }

// Stats are the counts of all policies together.
func (s *Set) Stats() weir.KeyedStats {
	var sum weir.KeyedStats
	for _, p := range s.policies {
		st := p.Limiter.Stats()
		sum.Keys += st.Keys
		sum.MaxKeys += st.MaxKeys
		sum.Granted += st.Granted
		sum.Refused += st.Refused
		sum.Untracked += st.Untracked
	}
	return sum
}
