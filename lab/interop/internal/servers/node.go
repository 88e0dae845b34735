//go:build linux

package servers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Addresses are where the fronts of a node listen. They differ each time it is started, so that no client can take one process
// for another.
type Addresses struct{ HTTP, RESP, GRPC string }

// Node is a weir serve.
type Node struct {
	Log     Log
	Name    string
	program string
	config  string
	at      *process
}

// NewNode is a node that is not started. Its configuration is kept in dir.
func NewNode(program, name, dir string) *Node {
	return &Node{Name: name, program: program, config: filepath.Join(dir, name+".yaml")}
}

// Configure writes its configuration, which a node that runs reads anew.
func (n *Node) Configure(text string) error {
	// It is put in place in one step, as an editor does.
	temporary := n.config + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		return fmt.Errorf("the configuration of %s: %w", n.Name, err)
	}
	if err := os.Rename(temporary, n.config); err != nil {
		return fmt.Errorf("the configuration of %s: %w", n.Name, err)
	}
	return nil
}

// Start starts the node, and waits until it listens.
func (n *Node) Start(ctx context.Context) (Addresses, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return Addresses{}, fmt.Errorf("starting %s: %w", n.Name, err)
	}
	defer func() { _ = read.Close() }() // all was read
	n.at, err = start(ctx, &n.Log, write, n.program, "serve", "--config", n.config, "--http", "127.0.0.1:0",
		"--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--shutdown-timeout", "5s")
	_ = write.Close() // the process has its own
	if err != nil {
		return Addresses{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = read.Close() })
	defer stop()
	lines := bufio.NewScanner(read)
	var a Addresses
	for _, to := range []*string{&a.HTTP, &a.RESP, &a.GRPC} {
		if !lines.Scan() {
			n.at.kill()
			return a, fmt.Errorf("%s has ended: %s", n.Name, n.Log.String())
		}
		fields := strings.Fields(lines.Text())
		*to = fields[len(fields)-1]
	}
	return a, nil
}

// Freeze stops it, and Thaw has it go on.
func (n *Node) Freeze() error { return n.at.signal(syscall.SIGSTOP) }

// Thaw has a node go on.
func (n *Node) Thaw() error { return n.at.signal(syscall.SIGCONT) }

// Kill is kill -9.
func (n *Node) Kill() {
	if n.at != nil {
		n.at.kill()
	}
}

// Stop ends it in order.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.at.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := Until(ctx, n.Name+" ends after SIGTERM", n.at.ended); err != nil {
		return err
	}
	return nil
}

// PID is that of the process.
func (n *Node) PID() int { return n.at.pid() }
