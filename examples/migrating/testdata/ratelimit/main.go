// Command ratelimit is the service of envoyproxy/ratelimit, which the tests build and run. It is a module of its own because it
// needs older versions of some libraries than the rest of the repository.
package main

import (
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
)

func main() {
	service := runner.NewRunner(settings.NewSettings())
	service.Run()
}
