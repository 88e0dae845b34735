package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
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

// mostAliased is how many nodes may be looked at again, as aliases lead to them.
const mostAliased = 1_000_000

// words are how a configuration says what is wrong with its YAML.
var words = yamlread.Words{
	Found:    true,
	Mapping:  "write key: value below it, or {key: value}",
	Unknown:  yamlread.OfKey{Message: "unknown key: no {key} is accepted in {what}", Path: true},
	Twice:    yamlread.OfKey{Message: "the key {key} stands here twice: first in line {first}", Path: true},
	Merge:    "<< must be a mapping, or a list of mappings, that are merged into this one",
	MergeFix: "write <<: *name of an anchor &name",
	Empty:    "the list is empty", EmptyFix: "add an item, or remove the key",
	Second: "remove the line ---",
}

// decoder turns the nodes of a file into policies and rules. It goes on after a mistake, and leaves out what cannot be used.
type decoder struct {
	*yamlread.Reader

	expressions *expressions
	// refusals are what the engine has against values of conditions, which often come again.
	refusals map[string]string
	// hasStore tells that shared policies need no store in the file.
	hasStore bool
	// hasCluster tells that policies of durability cluster need no cluster in the file.
	hasCluster bool
	// stateFile is where the program keeps calendar windows that say nothing else, "" if it does not, or the file has a cluster.
	stateFile string
	// hasShedder tells that priorities count.
	hasShedder bool
}

// oneOrList returns the items of a list, or a single value as the only item.
func (d *decoder) oneOrList(v yamlread.Value, what string) ([]yamlread.Value, bool) {
	if v.IsScalar() && !v.IsNull() || v.IsMapping() {
		return []yamlread.Value{v}, true
	}
	return d.list(v, what+", or a list")
}

// list returns the items of a list.
func (d *decoder) list(v yamlread.Value, what string) ([]yamlread.Value, bool) {
	return d.List(v, what, "write [a, b], or a line with - for each item")
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
	Warnings []yamlread.Mistake

	shown    map[string]string
	policies []*placedPolicy
	rules    []*placedRule
}

// Load reads a regular file of at most 16 MB. The error is an *[yamlread.Errors] if something is wrong with its content.
func Load(path string, o Options) (*File, error) {
	data, err := regularfile.Read(path, yamlread.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("weir: configuration: %w; docs/configuration.md begins with an example", err)
	case err != nil:
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	return Parse(path, data, o)
}

// Parse reads a configuration. The name is that of the file in messages. The error is an *[yamlread.Errors] with all mistakes.
func Parse(name string, data []byte, o Options) (*File, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	x, err := newExpressions(o.Now)
	if err != nil {
		return nil, err
	}
	d := &decoder{
		Reader:      yamlread.New(name, data, yamlread.Options{Words: words, Env: o.Env, Aliased: mostAliased}),
		expressions: x, hasStore: o.HasStore, hasCluster: o.HasCluster, hasShedder: o.HasShedder, stateFile: o.StateFile,
	}
	f := &File{}
	switch root, ok := d.Root(); {
	case !ok && d.Mistakes.Count() == 0:
		d.WrongAt(1, 1, "the file is empty", "begin with version: 1")
	case !ok:
	case isTests(root.Node):
		d.WrongAt(root.Node.Line, root.Node.Column, "this is a file of unit tests, and not a configuration",
			"run: weir test "+name+", or give the configuration that it names")
	default:
		f = d.whole(root)
	}
	if d.Exhausted() {
		d.Only(fmt.Sprintf("aliases lead to more than %d values", mostAliased),
			"use fewer aliases, or tiers and keys in one policy")
	}
	if errs := d.Errors(); errs != nil {
		return nil, errs
	}
	if err := f.Set.Check(); err != nil {
		d.refused(err)
		return nil, d.Errors()
	}
	f.Warnings = d.Warnings.Sorted()
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
func (d *decoder) whole(v yamlread.Value) *File {
	f := &File{Name: d.File(), Set: &policy.Set{}, shown: d.Shown}
	o, ok := fill(d, v, fileTable, f)
	if !ok {
		return f
	}
	d.needs(o, fileNeeds)
	if store, given := o.Get(keyStore); given {
		f.Store = d.store(store)
	}
	if cluster, given := o.Get(keyCluster); given {
		f.Cluster = d.cluster(cluster)
		d.stateFile = ""
	}
	if policies, given := o.Get("policies"); given {
		f.policies = d.policies(policies)
	}
	if rules, given := o.Get("rules"); given {
		f.rules = d.rules(rules)
	}
	d.relations(v, f)
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
func (d *decoder) version(v yamlread.Value, _ *File) {
	s, ok := d.Scalar(v, "the version of the format, 1", "write version: 1")
	if ok && (s.Text != "1" || !s.FromEnv && s.Node.ShortTag() != yamlread.TagInt) {
		d.Wrong(v, "must be 1, the only version of the format", "write version: 1")
	}
}

// refused adds mistakes that only the engine has found.
func (d *decoder) refused(err error) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		m := yamlread.Mistake{
			File: d.File(), Line: 1, Column: 1, Message: "the engine refuses it: " + err.Error(),
			Fix: "change the option that it names",
		}
		var o *weir.OptionError
		if errors.As(err, &o) {
			m.Message = o.Option + " must be " + o.Accepted
			m.Value = yamlread.Shorten(o.Value)
		}
		if len(d.Shown) > 0 { // the value may be one of the environment
			m.Value = ""
			m.Message = "the engine refuses it once the environment is put in"
			if o != nil {
				m.Message += ": must be " + o.Accepted
			}
		}
		d.Mistakes.Add(m)
	}
}
