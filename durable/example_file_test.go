package durable_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// A quota of a month for each customer, which survives restarts and crashes of the one process that grants it.
func ExampleOpenFile() {
	directory, err := os.MkdirTemp("", "quota-") // /var/lib/shop, for instance
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	month := weir.CalendarWindow(3, weir.Calendar{Unit: weir.CalendarMonth})
	for range 2 { // as if the program was restarted in between
		file, err := durable.OpenFile(filepath.Join(directory, "quotas"), durable.FileOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		node, err := durable.NewNode(durable.NodeOptions{Engine: file.Engine(), Address: "this process"})
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 2 {
			a := node.Acquire(context.Background(), durable.Request{Policy: "month", Key: "acme", Limit: month, N: 1})
			fmt.Println(a.Outcome)
		}
		_ = node.Close() // so that nothing is burned
		_ = file.Close()
	}
	// Output:
	// granted
	// granted
	// granted
	// refused
}
