package weirprom

const (
	// MaxNames is how many policies, and how many rules, of an engine have metrics of their own, those first in its set; and how
	// many opcodes of a dispatcher. The counts of all others are summed up under the name [Other]. They only grow, also where a
	// reload moves policies or rules between those first in the set and the others (TestOthersOnlyGrow).
	MaxNames = 1000
	// Other is the name of those beyond [MaxNames] together. A policy of this name counts as one of them.
	Other = "_other"
)
