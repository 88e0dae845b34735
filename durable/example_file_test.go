package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// A quota of a month for each customer, which survives restarts and crashes of the one process that has it.
func ExampleOpenKeyed() {
	directory, err := os.MkdirTemp("", "quota-") // /var/lib/shop, for instance
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	month := weir.CalendarWindow(3, weir.Month(nil))
	for range 2 { // as if the program was restarted in between
		quota, err := durable.OpenKeyed(filepath.Join(directory, "quota"), month, durable.KeyedOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(quota.Allow("acme"), quota.Allow("acme"))
		_ = quota.Close() // so that nothing is burned
	}
	// Output:
	// true true
	// true false
}

// A quota of a day and one of a year in one file, of which a request takes from both or from none.
func ExampleOpenFile() {
	directory, err := os.MkdirTemp("", "quota-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	file, err := durable.OpenFile(filepath.Join(directory, "quotas"), durable.FileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	node, err := durable.NewNode(durable.NodeOptions{Engine: file.Engine(), Address: "this process"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	charges := []store.Charge{
		{Policy: "day", Key: "acme", N: 2, Limit: weir.CalendarWindow(100, algo.Calendar{Unit: algo.CalendarDay})},
		{Policy: "year", Key: "acme", N: 2, Limit: weir.CalendarWindow(5, algo.Calendar{Unit: algo.CalendarYear})},
	}
	decisions := make([]weir.Decision, len(charges))
	for range 3 {
		if err := store.Take(context.Background(), node, charges, decisions); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(decisions[0].Allowed && decisions[1].Allowed, decisions[0].Remaining, decisions[1].Remaining)
	}
	// Output:
	// true 98 3
	// true 96 1
	// false 96 1
}

// docsQuota is the code of docs/restart.md.
func docsQuota(path string) error {
	quota, err := durable.OpenKeyed(path,
		weir.CalendarWindow(10_000, weir.Month(nil)), durable.KeyedOptions{})
	if err != nil {
		return err
	}
	defer quota.Close() // so that nothing is burned
	if !quota.Allow("acme") {
		return errors.New("the quota of this month is used up")
	}
	return nil
}
