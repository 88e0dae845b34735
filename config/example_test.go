package config_test

import (
	"fmt"
	"net/netip"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// Have an engine decide by the rules of a file.
func ExampleLoad() {
	file, err := config.Load("../examples/replay/stricter.yaml", config.Options{})
	if err != nil {
		fmt.Println(err) // all mistakes, one in a line
		return
	}
	engine, err := policy.NewEngine(file.Set, policy.EngineOptions{Clock: manualclock.New(0)}) // without Clock: that of the process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	login := &policy.Request{Method: "POST", Path: "/login", Client: netip.MustParseAddr("192.0.2.1")}
	var verdict policy.Verdict
	for range 6 {
		engine.Take(login, &verdict)
		d := verdict.Decision()
		fmt.Println(d.Allowed, d.Policy, d.Remaining)
		verdict.Release()
	}
	// Output:
	// true login/burst 4
	// true login/burst 3
	// true login/burst 2
	// true login/burst 1
	// true login/burst 0
	// false login/burst 0
}

// Every mistake has its place, and says what is accepted.
func ExampleParse() {
	_, err := config.Parse("weir.yaml", []byte("version: 1\npolicies:\n  api: {limit: 10/s, burts: 20}\n"), config.Options{})
	fmt.Println(err)
	// Output:
	// weir: weir.yaml cannot be used: 1 mistake
	// weir.yaml:3:22: policies.api.burts: unknown key: no "burts" is accepted in a policy; did you mean "burst"?
}
