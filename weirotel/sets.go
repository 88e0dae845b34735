package weirotel

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirhq/weir"
)

const (
	// MaxNames is how many policies, and how many rules, have an attribute with their own name: the first that decide, and those
	// first in the set of an engine. All others have the name [Other]. By default, SDKs keep 2000 sets of attributes of an
	// instrument apart.
	MaxNames = 500
	// Other is the name of those beyond [MaxNames].
	Other = "_other"
)

// The attributes.
const (
	policyKey = attribute.Key("weir.rate_limiting.policy")
	resultKey = attribute.Key("weir.rate_limiting.result")
	reasonKey = attribute.Key("weir.rate_limiting.reason")
	ruleKey   = attribute.Key("weir.rate_limiting.rule")
)

// result is what became of a request. From refused on there is one for each [weir.Reason].
type result uint8

const (
	acquired result = iota
	exempt
	unlimited
	canceled
	refused
)

// results is how many there are.
const results = refused + result(weir.ReasonDenied) + 1

var resultNames = [...]string{"acquired", "exempt", "unlimited", "request_canceled", "refused"}

func (r result) String() string { return resultNames[min(r, refused)] }

// attributes are those of a result.
func (r result) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{resultKey.String(r.String())}
	if r >= refused {
		all = append(all, reasonKey.String(weir.Reason(r-refused).String()))
	}
	return all
}

// set are the attributes of a policy in the form in which instruments take them without allocating.
type set struct {
	counted   [results][]metric.AddOption
	timed     [results][]metric.RecordOption
	held      []metric.AddOption
	heldTimed []metric.RecordOption
}

func newSet(policy string) *set {
	var own []attribute.KeyValue
	if policy != "" {
		own = append(own, policyKey.String(policy))
	}
	s := &set{}
	of := metric.WithAttributeSet(attribute.NewSet(own...))
	s.held, s.heldTimed = []metric.AddOption{of}, []metric.RecordOption{of}
	for r := range results {
		counted := metric.WithAttributeSet(attribute.NewSet(append(r.attributes(), own...)...))
		s.counted[r] = []metric.AddOption{counted}
		timed := metric.WithAttributeSet(attribute.NewSet(append(own, resultKey.String(r.String()))...))
		s.timed[r] = []metric.RecordOption{timed}
	}
	return s
}

// sets are those of all policies that have decided.
type sets struct {
	others *set
	all    atomic.Pointer[map[string]*set] // never changed
	lock   sync.Mutex                      // of those who replace it
}

func newSets() *sets {
	s := &sets{others: newSet(Other)}
	s.all.Store(&map[string]*set{"": newSet(""), Other: s.others})
	return s
}

// of is the set of a policy.
func (s *sets) of(policy string) *set {
	all := *s.all.Load()
	if set, ok := all[policy]; ok {
		return set
	}
	if len(all) >= MaxNames+2 {
		return s.others
	}
	return s.add(policy)
}

func (s *sets) add(policy string) *set {
	s.lock.Lock()
	defer s.lock.Unlock()
	old := *s.all.Load()
	if set, ok := old[policy]; ok {
		return set
	}
	if len(old) >= MaxNames+2 {
		return s.others
	}
	all := make(map[string]*set, len(old)+1)
	maps.Copy(all, old)
	all[policy] = newSet(policy)
	s.all.Store(&all)
	return all[policy]
}
