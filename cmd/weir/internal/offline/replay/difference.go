package replay

// difference is what changes from one configuration to another.
type difference struct {
	newlyRefused, newlyAdmitted int64
	policies                    []policyDifference // by number
}

type policyDifference struct {
	newlyRefused, newlyAdmitted int64
	refusedKeys, admittedKeys   tally
}

func newDifference(policies int) *difference {
	d := &difference{policies: make([]policyDifference, policies)}
	for i := range d.policies {
		d.policies[i].refusedKeys, d.policies[i].admittedKeys = newTally(policies), newTally(policies)
	}
	return d
}

// compare compares what the second configuration says to a batch with what the first has said, which is in the batch. A policy
// that does not apply to a request allows it.
func (d *difference) compare(b *batch) each {
	firstPart, firstKey := uint32(0), uint32(0)
	return func(i int, allowed bool, parts []part, keys []byte) {
		was := b.outcomes[i]
		switch {
		case was.allowed && !allowed:
			d.newlyRefused++
		case !was.allowed && allowed:
			d.newlyAdmitted++
		}
		before := b.parts[firstPart:was.parts]
		firstPart = was.parts
		start := uint32(0)
		for _, p := range parts {
			if p.refused && !refuses(before, p.policy) {
				d.policies[p.policy].newlyRefused++
				d.policies[p.policy].refusedKeys.add(keys[start:p.key])
			}
			start = p.key
		}
		for _, p := range before {
			if p.refused && !refuses(parts, p.policy) {
				d.policies[p.policy].newlyAdmitted++
				d.policies[p.policy].admittedKeys.add(b.keys[firstKey:p.key])
			}
			firstKey = p.key
		}
	}
}

// refuses reports whether the policy is among the parts and has refused.
func refuses(parts []part, policy int) bool {
	for _, p := range parts {
		if p.policy == policy {
			return p.refused
		}
	}
	return false
}
