// Weir keeps the traffic to a service below what it can take: it answers checks, stands in front as a proxy, or tries a
// limit on an access log.
package main

import (
	"os"

	"github.com/weirhq/weir/cmd/weir/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
