package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const keyDurability = "durability"

var durabilityNames = []string{policy.DurabilityMemory.String(), policy.DurabilityCluster.String()}

var durabilityHints = map[string]string{
	"durable": durabilityNames[1], "etcd": durabilityNames[1], "disk": durabilityNames[1], "raft": durabilityNames[1],
	"persistent": durabilityNames[1], "singleton": durabilityNames[1], "exact": durabilityNames[1],
	"file":  "write durability: cluster, and cluster: {file: /var/lib/weir/limits} at the top",
	"local": durabilityNames[0], "process": durabilityNames[0], "volatile": durabilityNames[0],
}

// durability reads what the counts of a policy survive.
func (d *decoder) durability(o *yamlread.Object, p *placedPolicy) {
	at, given := o.Get(keyDurability)
	if !given {
		p.durability = p.at
		return
	}
	p.durability = at
	if word, ok := d.Choice(at, durabilityNames, durabilityHints); ok {
		p.Durability = policy.DurabilityMemory // whatever a preset says
		_ = p.Durability.UnmarshalText([]byte(word))
	}
}

// inStateFile reports whether the program keeps a policy in its file, as nothing says otherwise.
func (d *decoder) inStateFile(p *placedPolicy) bool {
	quota := slices.ContainsFunc(p.Limits, func(l policy.Limit) bool {
		return l.Algorithm() == weir.AlgorithmCalendarWindow && l.Calendar().Unit >= algo.CalendarDay
	})
	if d.stateFile == "" || !quota || p.durability.Node != p.at.Node || p.Durability != policy.DurabilityMemory ||
		p.Mode == policy.ModeOff || p.Consistency.Shared() || p.Fail == policy.FailLocal || p.NewestFirst ||
		p.AdmitWhenFull {
		return false
	}
	all := [][]policy.Limit{p.Limits}
	all = slices.AppendSeq(all, maps.Values(p.Tiers))
	for _, limits := range slices.AppendSeq(all, maps.Values(p.Keys)) {
		for _, l := range limits {
			if why, _ := uncountable(l.Limit); why != "" || l.Algorithm() == weir.AlgorithmConcurrency {
				return false
			}
		}
	}
	return true
}

// undurable finds what a policy that the cluster owns cannot have.
func (d *decoder) undurable(o *yamlread.Object, p *placedPolicy) {
	const memory = ", or write durability: memory"
	if fail, given := o.Get("fail"); given && p.Fail == policy.FailLocal {
		d.Wrong(fail, "must be closed or open: without the owner of a policy of durability cluster nothing is allowed",
			"write fail: closed"+memory)
	}
	if queue, given := o.Get(keyQueue); given && p.NewestFirst {
		at := queue
		if p.order.Node != nil {
			at = p.order
		}
		d.Wrong(at, "must be oldest-first: the owner of a policy of durability cluster serves in the order of arrival",
			"remove it"+memory)
	}
	if full, given := o.Get("when_full"); given && p.AdmitWhenFull {
		d.Wrong(full, "must be deny: the keys of a policy of durability cluster are bounded by its owner", "remove it"+memory)
	}
	d.uncountableAll(p, keyDurability+": memory")
}

// clusterless finds policies that the cluster should own where there is none, and a cluster that owns nothing.
func (d *decoder) clusterless(f *File) {
	owns := false
	for _, p := range f.policies {
		if p.Durability != policy.DurabilityCluster {
			continue
		}
		owns = true
		if f.Cluster == nil && !d.hasCluster {
			at := p.durability
			if p.preset.Node != nil && at.Node == p.at.Node {
				at = p.preset
			}
			d.Wrong(at, "needs a cluster, and the file has none: its counts are kept by the owner that a cluster elects",
				"add cluster: {directory: /var/lib/weir} at the top, or write durability: memory")
		}
	}
	if f.Cluster != nil && !owns && len(f.policies) > 0 {
		d.Warn(f.Cluster.place.OfKey(), "no policy has durability cluster: the cluster is not used",
			"add durability: cluster to a policy, or remove it")
	}
}

// explainCluster writes how this process takes part in the cluster.
func (f *File) explainCluster(w io.Writer) {
	c := f.Cluster
	if c == nil {
		return
	}
	const path = keyCluster + "."
	fmt.Fprint(w, "\ncluster\n")
	if c.File != "" {
		line(w, keyFile, c.String()+", which this process alone uses")
		f.explainOwner(w)
		return
	}
	if len(c.Endpoints) > 0 {
		line(w, "etcd", "at "+c.String())
		if c.Username != "" {
			line(w, "user", f.show(path+keyUsername, c.Username))
		}
	} else {
		line(w, "etcd", "in this process, its data in "+c.String())
	}
	for i, name := range slices.Sorted(maps.Keys(c.Peers)) {
		label, text := "", name+" at "+f.show(yamlread.Join(path+keyPeers, name), c.Peers[name])
		if i == 0 {
			label = "nodes"
		}
		if name == c.Name {
			text += ", which is this one"
		}
		line(w, label, text)
	}
	if len(c.Peers) == 0 && len(c.Endpoints) == 0 {
		line(w, "nodes", "this one alone: no port is opened")
	}
	if c.Listen != "" {
		line(w, "listens", "for the etcd of others on "+f.show(path+"listen", c.Listen))
	}
	if c.Join {
		line(w, "join", "a cluster that exists")
	}
	if c.Address != "" {
		text := f.show(path+keyAddress, c.Address)
		if c.ListenAddress != "" {
			text += ", listens on " + f.show(path+"listen_address", c.ListenAddress)
		}
		if c.PeerCertFile != "" {
			text += ", over TLS"
		}
		line(w, keyAddress, text)
	}
	line(w, "prefix", f.show(path+"prefix", cmp.Or(c.Prefix, "/weir/")))
	f.explainOwner(w)
	requeue := "no: who waits while the owner goes is told to come back"
	if c.Requeue {
		requeue = "yes: who waits while the owner goes waits for the next one"
	}
	line(w, "requeue", requeue)
}

// explainOwner writes what the owner of the limits keeps, and what a crash of it burns.
func (f *File) explainOwner(w io.Writer) {
	const path = keyCluster + "."
	c := f.Cluster
	owner := f.show(path+keyMaxKeys, strconv.Itoa(cmp.Or(c.MaxKeys, 1_000_000))) + " keys in memory"
	if c.File == "" {
		ttl := yamlread.ShortDuration(cmp.Or(c.TTL, time.Second))
		owner = "outlasts its last sign of life by " + f.show(path+"ttl", ttl) + ", " + owner
	}
	line(w, "owner", owner)
	reserve := "up to a tenth of each limit, as it is in demand: a crash burns less than that, and allows none twice"
	switch {
	case c.Reserve == 1:
		reserve = f.show(path+"reserve", "1") + ": every request is written before it is allowed"
	case c.Reserve > 1:
		reserve = f.show(path+"reserve", yamlread.Count(c.Reserve)) +
			" permits at most: a crash burns less than that, and allows none twice"
	}
	line(w, "reserve", reserve)
}

// explainDurability writes what the counts of a policy survive.
func (f *File) explainDurability(w io.Writer, p *placedPolicy) {
	owner := ": one owner in the cluster, which allows nothing before it is durable"
	if p.Durability == policy.DurabilityFile {
		owner = ": in a file of this process, which allows nothing before it is on disk"
	}
	line(w, keyDurability, f.show(p.at.Path+"."+keyDurability, p.Durability.String())+owner)
	f.explainHold(w, p)
}
