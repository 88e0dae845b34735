// Dispatcher is a small server that limits what its clients ask for, each command by itself, with package policy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weirhq/weir/tiers"
)

//nolint:dupword // LOGIN comes twice in a session
const help = `Usage: dispatcher [-listen address]

A server of a text protocol: one command a line, one line of answer.

  PING            PONG; limited with all other commands of the address that have no limit of their own,
                  to 10 a second and 20 at once
  LOGIN name      limited to 1 a second and 2 at once
  SEARCH word     limited to 8 a second and 8 at once
  QUIT            ends the connection

Limits are those of an address, whatever ports it connects from. A command beyond its limit is dropped. The connection is
told so at most once in 200 ms, and so are those who keep coming until they are locked out, which takes 5 refusals and
lasts 10 s.

  $ printf 'PING\nLOGIN ada\nLOGIN ada\nLOGIN ada\nLOGIN ada\nSEARCH weir\n' | nc -N 127.0.0.1 7171
  PONG
  OK welcome ada
  OK welcome ada
  REFUSED LOGIN: soft-throttle, retry after 1000 ms
  OK 2 results: weir, weirdness

The server ends at an interrupt, after it has answered what it has read, and reports what it did.

  -listen address   where to listen (default 127.0.0.1:7171)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: it returns 0, 1 if it cannot serve, and 2 if it is not used as it should be.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("dispatcher", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "127.0.0.1:7171", "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("argument %q: must be none", flags.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "dispatcher: %v\nTry dispatcher -help.\n", err)
		return 2
	}
	s, err := newServer(nil, slog.New(slog.NewTextHandler(stderr, nil))) //nolint:contextcheck // limiters end by Close
	if err != nil {
		fmt.Fprintf(stderr, "dispatcher: %v\n", err)
		return 1
	}
	defer s.close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		fmt.Fprintf(stderr, "dispatcher: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "listening on %v\n", listener.Addr())
	err = s.serve(ctx, listener)
	report(stdout, s)
	if err != nil {
		fmt.Fprintf(stderr, "dispatcher: %v\n", err)
		return 1
	}
	return 0
}

func report(w io.Writer, s *server) {
	stats := s.dispatcher.Stats()
	for _, op := range append(stats.Ops, stats.Unknown) {
		fmt.Fprintf(w, "%-8s %d passed, %d throttled, %d locked out\n",
			opcode(op.Op), op.Passed, op.Soft, op.Hard)
	}
	fmt.Fprintf(w, "%d notices, %d dropped in silence\n%v", stats.Notices, stats.Silent, s.tiers)
}

// opcode is the number of a command, 0 for what is none.
type opcode uint64

const (
	opUnknown opcode = iota
	opPing
	opLogin
	opSearch
	opQuit
)

var commands = [...]string{"unknown", "PING", "LOGIN", "SEARCH", "QUIT"}

func (o opcode) String() string { return commands[o] }

func parseOpcode(command string) opcode {
	for o := opPing; o <= opQuit; o++ {
		if strings.EqualFold(command, commands[o]) {
			return o
		}
	}
	return opUnknown
}

// limits are what the handlers ask for. Commands that are not in it have no limit of their own.
var limits = map[opcode]*tiers.Attribute{
	opLogin:  {RPS: 1, Burst: 2},
	opSearch: {RPS: 8, Burst: 8},
}
