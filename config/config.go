package config

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/regularfile"
	"github.com/weirhq/weir/policy"
)

// Version is the version of the format that this package reads.
const Version = 1

// Options say how a file is read.
type Options struct {
	// Env looks up variables of the environment. Default: nil, os.LookupEnv.
	Env func(name string) (value string, ok bool)
	// Now is the time that expressions know as now. Default: nil, time.Now.
	Now func() time.Time
	// HasStore is for a program that has a store for shared policies that is not in the file, or keeps them in its own process.
	// Default: false, shared policies need a store in the file.
	HasStore bool
	// HasCluster is for a program that is part of a cluster that is not in the file, or keeps the limits of policies of
	// durability cluster in its own process. Default: false, such policies need a cluster in the file.
	HasCluster bool
	// StateFile is the file in which the program keeps the calendar windows of a day and longer: those of policies without a
	// durability that are not shared, and have no limit of concurrency and nothing else that durability cluster cannot have. It
	// counts only where the file has no cluster. Default: "", they are kept in memory.
	StateFile string
	// HasShedder is for a program that gives its engine a [overload.Shedder], which the priorities of policies are for. Default:
	// false, a priority changes nothing, and there is a warning about each.
	HasShedder bool
}

// File is a configuration that was read. It does not change.
type File struct {
	// Name is the name of the file.
	Name string
	// Set is the content of the file, for [policy.NewEngine]. It must not be changed.
	Set *policy.Set
	// Store is where the states of shared policies are kept, nil if the file does not say so.
	Store *Store
	// Cluster is how this process takes part in the cluster that owns the policies of durability cluster: that of the file, or
	// [InFile] if there are policies for Options.StateFile. It is nil if there is neither.
	Cluster *Cluster
	// Warnings are what is likely not meant, in the order of the file.
	Warnings []Mistake

	shown    map[string]string
	policies []*placedPolicy
	rules    []*placedRule
}

// Load reads a regular file of at most 16 MB. The error is an *[Errors] if something is wrong with its content.
func Load(path string, o Options) (*File, error) {
	data, err := regularfile.Read(path, mostBytes)
	if err != nil {
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	return Parse(path, data, o)
}

// Parse reads a configuration. The name is that of the file in messages. The error is an *[Errors] with all mistakes.
func Parse(name string, data []byte, o Options) (*File, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s, root, wrong := parse(name, data)
	switch {
	case wrong != nil:
		return nil, &Errors{File: name, Mistakes: []Mistake{*wrong}}
	case root == nil:
		m := s.mistake(1, 1, "the file is empty", "begin with version: 1")
		return nil, &Errors{File: name, Mistakes: []Mistake{*m}}
	case isTests(root):
		m := s.mistake(root.Line, root.Column, "this is a file of unit tests, and not a configuration",
			"run: weir test "+name+", or give the configuration that it names")
		return nil, &Errors{File: name, Mistakes: []Mistake{*m}}
	}
	x, err := newExpressions(o.Now)
	if err != nil {
		return nil, err
	}
	d := &decoder{
		source: s, env: o.Env, expressions: x, shown: map[string]string{}, budget: nodes(root) + mostAliased,
		hasStore: o.HasStore, hasCluster: o.HasCluster, hasShedder: o.HasShedder, stateFile: o.StateFile,
	}
	f := d.whole(value{node: d.resolve(root)})
	if d.budget < 0 { // what was left out may have made other mistakes
		m := s.mistake(1, 1, fmt.Sprintf("aliases lead to more than %d values", mostAliased),
			"use fewer aliases, or tiers and keys in one policy")
		return nil, &Errors{File: name, Mistakes: []Mistake{*m}}
	}
	if len(d.all) > 0 {
		return nil, &Errors{File: name, Mistakes: d.sorted(), Omitted: d.omitted}
	}
	if err := f.Set.Check(); err != nil {
		return nil, &Errors{File: name, Mistakes: d.refused(err)}
	}
	f.Warnings = d.warnings.sorted()
	return f, nil
}

// isTests reports whether the keys at the top are those of a file with which the program tests a configuration. All of them would
// be mistakes here.
func isTests(root *yaml.Node) bool {
	tests := false
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "tests":
			tests = true
		case "policies", "rules":
			return false
		}
	}
	return tests
}

// whole reads the whole file.
func (d *decoder) whole(v value) *File {
	f := &File{Name: d.source.name, Set: &policy.Set{}, shown: d.shown}
	o, ok := d.object(v, fileKind)
	if !ok {
		return f
	}
	if version, given := o.get("version"); given {
		d.version(version)
	} else {
		o.missing("version", "is missing: it must be 1", "add version: 1")
	}
	if store, given := o.get(keyStore); given {
		f.Store = d.store(store)
	}
	if cluster, given := o.get(keyCluster); given {
		f.Cluster = d.cluster(cluster)
		d.stateFile = ""
	}
	if policies, given := o.get("policies"); given {
		f.policies = d.policies(policies)
	}
	if rules, given := o.get("rules"); given {
		f.rules = d.rules(rules)
	}
	d.relations(f)
	for _, p := range f.policies {
		if d.inStateFile(p) {
			p.Durability, f.Cluster = policy.DurabilityFile, InFile(d.stateFile)
		} else if p.Durability == policy.DurabilityCluster && f.Cluster != nil && f.Cluster.File != "" {
			p.Durability = policy.DurabilityFile
		}
		f.Set.Policies = append(f.Set.Policies, p.Policy)
	}
	for _, r := range f.rules {
		f.Set.Rules = append(f.Set.Rules, r.Rule)
	}
	return f
}

// version reads the version of the format.
func (d *decoder) version(v value) {
	s, ok := d.scalar(v, "the version of the format, 1", "write version: 1")
	if ok && (s.text != "1" || !s.env && s.node.ShortTag() != tagInt) {
		d.wrong(v, "must be 1, the only version of the format", "write version: 1")
	}
}

// refused are mistakes that only the engine has found.
func (d *decoder) refused(err error) []Mistake {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	all := make([]Mistake, 0, len(errs))
	for _, err := range errs {
		m := d.source.mistake(1, 1, "the engine refuses it: "+err.Error(), "change the option that it names")
		var o *weir.OptionError
		if errors.As(err, &o) {
			m.Message = o.Option + " must be " + o.Accepted
			m.Value = shorten(o.Value)
		}
		if len(d.shown) > 0 { // the value may be one of the environment
			m.Value = ""
			m.Message = "the engine refuses it once the environment is put in"
			if o != nil {
				m.Message += ": must be " + o.Accepted
			}
		}
		all = append(all, *m)
	}
	return all
}
