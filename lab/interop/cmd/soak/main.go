//go:build linux

// Command soak runs three nodes of weir with a Redis for a while, under mixed traffic and faults, and reports whether every
// limit was kept. docs/soak.md says what it does and how its report is read.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/weirhq/weir/lab/interop/internal/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// options are those of the command line.
type options struct {
	soak.Options

	faults  string
	json    bool
	history string
	keep    bool
}

// run returns the status of the program: 0 if every bound was kept, 1 if not, 2 if it was called wrongly.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	fs := pflag.NewFlagSet("soak", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.Duration, "duration", 30*time.Minute,
		"for how long, from 5s; up to 3m more if nothing was granted of some policy by then")
	fs.Float64Var(&o.Rate, "rate", 200, "requests a second, from 1 to 20000")
	fs.Uint64Var(&o.Seed, "seed", 1, "what requests and faults are chosen by")
	fs.StringVar(&o.faults, "faults", "all",
		"what is done to the servers, separated by commas; all, or none: "+strings.Join(names(), ", "))
	fs.StringVar(&o.Program, "weir", "bin/weir", "path of the program weir")
	fs.BoolVar(&o.json, "json", false, "write the report as JSON")
	fs.StringVar(&o.history, "history", "",
		"where what happened around a broken bound is written (default: beside what the servers have written)")
	fs.BoolVar(&o.keep, "keep", false, "keep what the servers have written")
	fs.StringVar(&o.Forge, "forge", "", "note one answer wrongly: minted or lost")
	_ = fs.MarkHidden("forge") // it exists
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.check(fs)
	}
	if err != nil {
		fmt.Fprintln(stderr, "soak:", err)
		return 2
	}
	report, err := o.run(ctx, stderr)
	if report == nil {
		fmt.Fprintln(stderr, "soak:", err)
		return 1
	}
	if o.json {
		to := json.NewEncoder(stdout)
		to.SetIndent("", "  ")
		err = to.Encode(report)
	} else {
		report.Print(stdout)
	}
	if err == nil && report.OK {
		return 0
	}
	if err := report.WriteHistory(o.history); err != nil {
		fmt.Fprintln(stderr, "soak:", err)
	} else {
		fmt.Fprintln(stderr, "soak: what happened is in", o.history)
	}
	return 1
}

func names() (all []string) {
	for _, f := range soak.Faults() {
		all = append(all, f.Name)
	}
	return all
}

func (o *options) check(fs *pflag.FlagSet) error {
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("%q: there must be no arguments", fs.Arg(0))
	case o.Duration < 5*time.Second:
		return fmt.Errorf("--duration %v: must be at least 5s", o.Duration)
	case o.Rate < 1 || o.Rate > 20_000:
		return fmt.Errorf("--rate %v: must be from 1 to 20000", o.Rate)
	case o.Forge != "" && o.Forge != "minted" && o.Forge != "lost":
		return fmt.Errorf("--forge %q: must be minted or lost", o.Forge)
	}
	if _, err := os.Stat(o.Program); err != nil {
		return fmt.Errorf("--weir %q: must be the program, which `make build` builds: %w", o.Program, err)
	}
	if o.faults == "none" {
		return nil
	}
	for name := range strings.SplitSeq(o.faults, ",") {
		found := false
		for _, f := range soak.Faults() {
			if f.Name == name || name == "all" {
				o.Faults = append(o.Faults, f)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("--faults %q: must be all, none, or some of %s", name, strings.Join(names(), ", "))
		}
	}
	return nil
}

func (o *options) run(ctx context.Context, stderr io.Writer) (*soak.Report, error) {
	dir, err := os.MkdirTemp("", "weir-soak-")
	if err != nil {
		return nil, err
	}
	if o.Directory = dir; o.history == "" {
		o.history = filepath.Join(dir, "history.jsonl")
	}
	// Another build does not change what is tried.
	program := filepath.Join(dir, "weir")
	err = copyProgram(program, o.Program)
	if err != nil {
		return nil, err
	}
	o.Program = program
	o.Every = time.Minute
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.Every = 10 * time.Second
	}
	o.Progress = func(p soak.Progress) {
		fmt.Fprintf(stderr, "%v of %v: %d requests, %d faults (%s), %d broken bounds; %s\n", p.At.Round(time.Second), p.Of,
			p.Requests, p.Faults, p.LastFault, p.Breaches, strings.Join(p.Memory, ", "))
	}
	report, err := soak.Run(ctx, o.Options)
	switch {
	case o.keep || report == nil || !report.OK:
		fmt.Fprintln(stderr, "soak: what the servers have written is in", dir)
	default:
		_ = os.RemoveAll(dir) // what cannot be removed is left to the system
	}
	return report, err
}

func copyProgram(to, from string) error {
	in, err := os.Open(from) //nolint:gosec // the program that was asked for
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                                     // it was read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700) //nolint:gosec // it is run
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		_ = out.Close() // what matters has failed before
		return err
	}
	return out.Close()
}
