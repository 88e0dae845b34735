package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// TestClusterInAFile: a process that keeps its limits alone says where, and nothing of nodes.
func TestClusterInAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	f, err := config.Parse(name, []byte(clustered("{file: limits, reserve: 7, max_keys: 9}")), config.Options{Env: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(filepath.Dir(name), "limits")
	if c := f.Cluster; c.File != at || c.Reserve != 7 || c.MaxKeys != 9 || c.Directory != "" || c.String() != at {
		t.Errorf("%+v", c)
	}
	var b strings.Builder
	f.Explain(&b)
	for _, want := range []string{"process alone uses", "9 keys in memory", "7 permits at most", "in a file of this process", "all, in the file"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &b)
		}
	}
}

// TestStateFile: what the program keeps in its file are calendar windows of a day and longer that say nothing else.
func TestStateFile(t *testing.T) {
	const month = "limits: [{algorithm: calendar-window, permits: 5, every: month}]"
	for text, want := range map[string]bool{
		"limit: 5/s": false,
		month:        true,
		"limits: [{algorithm: calendar-window, permits: 5, every: day}]":                                             true,
		"limits: [{algorithm: calendar-window, permits: 5, every: hour}]":                                            false,
		"limits: [{rate: 5/s}, {algorithm: calendar-window, permits: 5, every: year}]":                               true,
		"limits: [{algorithm: concurrency, permits: 5}, {algorithm: calendar-window, permits: 5, every: year}]":      false,
		"limits: [{rate: 1/ns}, {algorithm: calendar-window, permits: 5, every: year}]":                              true,
		"limits: [{algorithm: fixed-window, rate: 1/1500ns}, {algorithm: calendar-window, permits: 5, every: year}]": false,
		month + "\n    durability: memory":                                                                           false,
		month + "\n    consistency: coherent":                                                                        false,
		month + "\n    consistency: local":                                                                           true,
		month + "\n    mode: off":                                                                                    false,
		month + "\n    mode: shadow":                                                                                 true,
		month + "\n    when_full: admit":                                                                             false,
		month + "\n    queue: {limit: 5}":                                                                            true,
		month + "\n    queue: {limit: 5, order: newest-first}":                                                       false,
		month + "\n    keys: {a: {limits: [{algorithm: calendar-window, permits: 6, every: month}]}}":                true,
		month + "\n    fail: open":                                                                                   true,
		"limits: [{algorithm: calendar-window, permits: 5, every: minute}]\n    candidate: {" + month + "}":          false,
	} {
		text = "version: 1\npolicies:\n  p:\n    " + text + "\n"
		f, err := config.Parse("f", []byte(text), config.Options{Env: noEnv, HasStore: true, StateFile: "/state/limits"})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Set.Policies[0].Durability == policy.DurabilityFile; got != want {
			t.Errorf("%s: in the file %v, want %v", text, got, want)
		}
		if got := f.Cluster.Same(config.InFile("/state/limits")); got != want {
			t.Errorf("%s: the cluster is %v", text, f.Cluster)
		}
		f, err = config.Parse("f", []byte(text), config.Options{Env: noEnv, HasStore: true})
		if err != nil || f.Set.Policies[0].Durability != policy.DurabilityMemory || f.Cluster != nil {
			t.Errorf("%s: without a file %v (%v)", text, f.Cluster, err)
		}
	}
}

// TestStateFileBesideACluster: a file that has a cluster says itself what it owns, and one that needs a cluster must have it.
func TestStateFileBesideACluster(t *testing.T) {
	const month = "{key: client, limits: [{algorithm: calendar-window, permits: 5, every: month}]"
	options := config.Options{Env: noEnv, StateFile: "/state/limits"}
	f, err := config.Parse("f", []byte("version: 1\ncluster: {directory: /d}\npolicies:\n  p: "+month+"}\n  q: "+month+", durability: cluster}\n"), options)
	if err != nil {
		t.Fatal(err)
	}
	if f.Cluster.Directory != "/d" || f.Set.Policies[0].Durability != policy.DurabilityMemory {
		t.Errorf("%+v, %v", f.Cluster, f.Set.Policies[0].Durability)
	}
	_, err = config.Parse("f", []byte("version: 1\npolicies:\n  p: "+month+"}\n  q: "+month+", durability: cluster}\n"), options)
	if err == nil || !strings.Contains(err.Error(), "needs a cluster, and the file has none") {
		t.Errorf("without a cluster: %v", err)
	}
}
