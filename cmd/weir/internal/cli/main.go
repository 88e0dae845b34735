// Package cli is the command line of the program: the commands, their help, and how it ends.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the program with these arguments, its name left out, and returns its exit status: 0 after success, 1 after a
// failure, 2 after misuse, 130 if it was interrupted before it was done.
//
// The first SIGINT or SIGTERM ends the context of the command, the second ends the program at once.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			// In this order: once a command sees the end of its context, the next signal kills.
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
	}()

	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var unwritten error
	styleHelp(root, func(err error) { unwritten = err })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = unwritten
	}
	return report(stderr, cmd, err)
}
