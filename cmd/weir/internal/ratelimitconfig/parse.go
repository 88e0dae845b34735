package ratelimitconfig

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// File is a file that was read. Mistakes call it by its Name.
type File = live.File

// Options say what files leave open.
type Options struct {
	// Algorithm counts the limits that do not say. Default: FixedWindow, as envoyproxy/ratelimit counts.
	Algorithm Algorithm
	// Consistency is that of limits that do not say. Default: policy.ConsistencyLocal.
	Consistency policy.Consistency
	// NoStore makes it a mistake that a limit is to be shared, as there is no store through which it could be. Default: there
	// is one.
	NoStore bool
	// Fail says what happens while the store of shared limits is unavailable. Default: policy.FailClosed.
	Fail policy.Fail
	// MaxKeys bounds the keys that each policy tracks. Default: that of policy.Policy.
	MaxKeys int
	// Merge accepts several files with the same domain, whose descriptors are put together. Default: that is a mistake.
	Merge bool
	// Shadow makes all limits those of shadow mode, overrides included. Default: those that say so.
	Shadow bool
	// Quota makes all limits those of quota mode, overrides included, except those of shadow mode. Default: those that say so.
	Quota bool
	// Policies is up to how many limits each have a policy of their own, named like the descriptor. If there are more, as each
	// policy takes some 240 kB, those of a domain that are counted alike share one; if that are too many as well, those of all
	// domains do. From 1 to 10,000. Default: 256.
	Policies int
	// Taken reports whether a policy of this name exists already, so that another one is chosen. Default: nil, none.
	Taken func(name string) bool
}

const (
	defaultPolicies = 256
	mostPolicies    = 10_000
)

// check completes options, or says what is wrong with them.
func (o *Options) check() error {
	if o.Algorithm >= algorithms {
		return &weir.OptionError{
			Option: "Options.Algorithm", Value: o.Algorithm.String(), Accepted: yamlread.OneOf(algorithmNames[:]),
		}
	}
	if o.Policies < 0 || o.Policies > mostPolicies {
		return &weir.OptionError{
			Option: "Options.Policies", Value: strconv.Itoa(o.Policies), Accepted: fmt.Sprintf("from 1 to %d", mostPolicies),
		}
	}
	if o.Policies == 0 {
		o.Policies = defaultPolicies
	}
	return nil
}

// Config is what files say. It never changes, and is safe for concurrent use.
type Config struct {
	// Policies count the limits, and the overrides that requests bring. They must not be changed.
	Policies []policy.Policy
	// Limits are the limits, in the order of the files. They must not be changed.
	Limits []*Limit
	// Warnings are what is likely not meant, in the order of the files.
	Warnings []yamlread.Mistake

	domains   map[string]*domain
	overrides overrides
	quota     bool // all limits are quotas
}

// Quotas reports whether all limits are quotas. Then a descriptor without a limit is a quota that is not reached.
func (c *Config) Quotas() bool { return c.quota }

// Domains are the names of the domains, in order.
func (c *Config) Domains() []string {
	names := make([]string, 0, len(c.domains))
	for name := range c.domains {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Name is what all files are called together in what is wrong with them.
const Name = "the rate limit configuration"

// Parse reads files. If they cannot be used, the error is a [*yamlread.Errors], which lists all that is wrong with them, or says
// which option cannot be used.
func Parse(files []File, o Options) (*Config, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d := &decoder{o: o, domains: make(map[string]*domain)}
	readers := make([]*yamlread.Reader, 0, len(files))
	total := 0
	for _, f := range files {
		d.Reader = yamlread.New(f.Name, f.Data, yamlread.Options{Words: words, Aliased: mostAliased})
		readers = append(readers, d.Reader)
		if total += len(f.Data); total > yamlread.MaxBytes {
			d.WrongAt(1, 1, fmt.Sprintf("the files have more than %d MB", yamlread.MaxBytes>>20),
				"split them among several servers")
			break
		}
		switch root, ok := d.Root(); {
		case ok && !root.IsNull():
			d.readFile(root)
		case d.Mistakes.Count() == 0:
			d.WrongAt(1, 1, "is empty: must have a domain", "write domain: a name")
		}
	}
	d.checkReplaces()
	if errs := yamlread.ErrorsOf(Name, readers...); errs != nil {
		return nil, errs
	}
	c := &Config{Limits: d.limits, domains: d.domains, quota: d.o.Quota}
	for _, r := range readers {
		c.Warnings = append(c.Warnings, r.Warnings.Sorted()...)
	}
	d.addPolicies(c)
	if err := (&policy.Set{Policies: c.Policies}).Check(); err != nil {
		return nil, fmt.Errorf("weir: %s cannot be used: %w", Name, err)
	}
	return c, nil
}
