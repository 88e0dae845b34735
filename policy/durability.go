package policy

// Durability is what the limits of a policy survive.
type Durability uint8

const (
	// DurabilityMemory keeps them in memory, of this process or, if they are shared, of a store that promises what it promises.
	DurabilityMemory Durability = iota
	// DurabilityCluster has one owner in the cluster, which allows nothing before it is durable, and a fair queue: see package
	// durable.
	DurabilityCluster
	// DurabilityFile is DurabilityCluster where the owner is this process, which keeps the limits in a file. Only what is shown
	// differs.
	DurabilityFile

	durabilities
)

var durabilityNames = [durabilities]string{"memory", "cluster", "file"}

// Shared reports whether the limits of the policy are kept for several processes: in a store, or by their owner.
func (p *Policy) Shared() bool { return p.Consistency.Shared() || p.Durability != DurabilityMemory }

// String is "memory", "cluster" or "file".
func (d Durability) String() string { return nameIn(durabilityNames[:], d, "Durability") }

// MarshalText is String.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Durability) UnmarshalText(text []byte) error {
	return findName(durabilityNames[:], d, text, "durability")
}
