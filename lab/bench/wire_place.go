package bench

import (
	"fmt"
	"os/exec"
)

// wirePlace is where servers run and where the load generator does: a processor for each.
type wirePlace struct {
	server, client int
	// shared tells that both processors are threads of one core.
	shared bool
}

// start starts a program that has one processor, and it alone.
func (p wirePlace) start(cmd *exec.Cmd, processor int) error {
	if err := startOn(cmd, processor); err != nil {
		return fmt.Errorf("bench: start %s on processor %d: %w", cmd.Path, processor, err)
	}
	return nil
}

// onServer and onClient start a program where servers or the load generator run.
func (p wirePlace) onServer(cmd *exec.Cmd) error { return p.start(cmd, p.server) }
func (p wirePlace) onClient(cmd *exec.Cmd) error { return p.start(cmd, p.client) }
