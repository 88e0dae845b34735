package config

import (
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/policy"
)

const (
	keyPreset = "preset"

	presetMeteredAPI = "metered-api"
	presetFromEnv    = "metered-api-from-env" // the same with what the environment says

	meteredQueue = 10_000
	meteredWait  = 30 * time.Second
)

var presetNames = []string{presetMeteredAPI, presetFromEnv}

var presetHints = map[string]string{
	"metered": presetMeteredAPI, "metered_api": presetMeteredAPI, "meteredapi": presetMeteredAPI, "gemini": presetFromEnv,
	"outbound": presetMeteredAPI, "upstream": presetMeteredAPI,
}

// preset reads what a policy has where it does not say so itself.
func (d *decoder) preset(o *yamlread.Object, p *placedPolicy) {
	at, given := o.Get(keyPreset)
	if !given {
		return
	}
	word, ok := d.Choice(at, presetNames, presetHints)
	if !ok {
		p.preset = at // the limits that are missing need no mistake of their own
		return
	}
	p.fromEnv = word == presetFromEnv
	p.preset, p.QueueLimit, p.MaxWait, p.Durability = at, meteredQueue, meteredWait, policy.DurabilityCluster
}

// presetLimit is the limit of a preset, if the policy has none of its own.
func (d *decoder) presetLimit(o *yamlread.Object, p *placedPolicy) (limitSet, bool) {
	_, short := o.Get(keyLimit)
	_, long := o.Get(keyLimits)
	if short || long || p.preset.Node == nil {
		return limitSet{}, false
	}
	set := limitSet{at: o.Value}
	if p.QueueLimit == 0 { // the preset is not known
		return set, true
	}
	var l placedLimit
	l.at = yamlread.Value{Node: p.preset.Node, Path: yamlread.Join(p.at.Path, keyLimit), Key: p.preset.Key}
	used := map[string]bool{}
	l.Limit.Limit = durable.MeteredAPI(func(name string) string {
		if !p.fromEnv {
			return ""
		}
		text, _ := d.Env(name)
		used[name] = text != ""
		return text
	}, func(text string) {
		for name := range used {
			if strings.HasPrefix(text, "weir: "+name+" ") {
				used[name] = false
				_, accepted, _ := strings.Cut(text, ": must be ")
				accepted, instead, _ := strings.Cut(accepted, ": ")
				d.Warn(p.preset, "the variable "+name+" of the environment cannot be used: must be "+accepted+"; "+instead,
					"correct it, or unset it")
			}
		}
	})
	if used[durable.PerMinuteVariable] {
		d.Shown[l.at.Path] = "${" + durable.PerMinuteVariable + "}/min"
	}
	if used[durable.BurstVariable] {
		d.Shown[yamlread.Join(p.at.Path, keyBurst)] = "${" + durable.BurstVariable + "}"
	}
	l.ok = true
	if burst, given := o.Get(keyBurst); given {
		delete(d.Shown, burst.Path)
		var permits int64
		permits, l.ok = permitCount.read(d, burst)
		l.Limit.Limit = limits.WithPermits(l.Limit.Limit, permits)
	}
	l.permits = l.Permits()
	l.ok = l.ok && d.checkLimit(p.preset, l.Limit.Limit)
	set.ok, set.limits = l.ok, []placedLimit{l}
	return set, true
}

// unset drops what a preset has that a policy which says otherwise cannot have.
func (p *placedPolicy) unset(o *yamlread.Object) {
	if p.preset.Node == nil {
		return
	}
	if _, given := o.Get(keyDurability); !given && p.Consistency.Shared() {
		p.Durability = policy.DurabilityMemory
	}
	if _, given := o.Get(keyQueue); !given && p.Consistency.Shared() {
		p.QueueLimit, p.MaxWait, p.NewestFirst = 0, 0, false
	}
}

// explainPreset writes what a policy has from elsewhere.
func (f *File) explainPreset(w io.Writer, p *placedPolicy) {
	if p.preset.Node != nil {
		line(w, keyPreset, f.show(p.preset.Path, p.preset.Node.Value)+": what the policy does not say itself")
	}
}
