// Command numbers measures weir beside its peers and beside the floor of the machine, prints a table of ratios and writes
// all tables to docs/benchmarks/raw.md, of which command summary makes docs/benchmarks.md. It takes about twenty minutes, most
// of it for limiters of ten million keys, an attack by fifty million, limits in Redis, durable ones and servers, and up to 4 GB
// of memory. It starts redis-server, which must be installed, itself as nodes of a cluster and as servers, and weir, which it
// builds, and stops them. A target that was missed is shown, and is no failure. A run that is interrupted prints what it has
// measured, and writes no document.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirhq/weir/lab/bench"
)

// The exit codes.
const (
	exitFailed = 1
	exitMisuse = 2
)

func main() {
	if bench.ServeMember() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	settings bench.Settings
	match    *regexp.Regexp
	json     bool
	out      string
}

var errMisuse = errors.New("weir: misuse of the command line")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr) //nolint:contextcheck // it only reads the names of the rows
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errMisuse):
		return exitMisuse
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitMisuse
	}
	report, err := bench.Run(ctx, o.settings, o.match, func(name string) { fmt.Fprintf(stderr, "measuring %s\n", name) })
	if err != nil {
		o.out = "" // a document of a part of it would pass for the whole
	}
	if err = errors.Join(err, show(report, o, stdout, stderr)); err != nil {
		fmt.Fprintf(stderr, "weir: numbers: %v\n", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("numbers", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.settings = bench.DefaultSettings()
	s := &o.settings
	rows := f.String("rows", "", "measure only what matches this regular expression, and write no document")
	f.DurationVar(&s.Time, "time", s.Time, "time of one measurement of one subject")
	f.IntVar(&s.Count, "count", s.Count, "number of rounds, in each of which every subject of a row is measured once")
	f.DurationVar(&s.Wall, "wall", s.Wall, "time of measurements that are about time: 64 goroutines, waiters")
	f.IntVar(&s.WallCount, "wall-count", s.WallCount, "number of rounds of waiters")
	f.DurationVar(&s.Redis, "redis", s.Redis, "time of one measurement of one limiter in Redis")
	f.IntVar(&s.RedisCount, "redis-count", s.RedisCount, "number of rounds of limiters in Redis")
	f.DurationVar(&s.Durable, "durable", s.Durable, "time of one measurement of a durable limit")
	f.IntVar(&s.DurableCount, "durable-count", s.DurableCount, "number of rounds of durable limits")
	f.DurationVar(&s.Wire, "wire", s.Wire, "time of one measurement of a server")
	f.IntVar(&s.WireCount, "wire-count", s.WireCount, "number of rounds of servers")
	shrink := f.Int("shrink", 1, "divide the numbers of keys by this: for a trial, not for the document")
	f.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	f.StringVar(&o.out, "out", "", "write the document to this file (default docs/benchmarks/raw.md of the repository)")
	if err = f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errMisuse // the flag set has said what is wrong
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("weir: numbers: argument %q: there must be none", f.Arg(0))
	}
	if wrong := o.check(*rows, *shrink); wrong != nil {
		return o, wrong
	}
	s.Keys[0], s.Keys[1], s.AttackKeys = s.Keys[0] / *shrink, s.Keys[1] / *shrink, s.AttackKeys / *shrink
	s.WireKeys = max(1, s.WireKeys / *shrink)
	if o.match, err = regexp.Compile(*rows); err != nil {
		return o, fmt.Errorf("weir: numbers: --rows is %q: must be a regular expression: %w", *rows, err)
	}
	err = o.find(*rows)
	return o, err
}

// check says what of the command line cannot be.
func (o *options) check(rows string, shrink int) error {
	s := &o.settings
	switch {
	case s.Time < time.Microsecond || s.Time > time.Minute:
		return fmt.Errorf("weir: numbers: --time is %v: must be from 1us to 1m", s.Time)
	case s.Count < 1 || s.Count > 1000:
		return fmt.Errorf("weir: numbers: --count is %d: must be from 1 to 1000", s.Count)
	case s.Wall < time.Millisecond || s.Wall > time.Minute:
		return fmt.Errorf("weir: numbers: --wall is %v: must be from 1ms to 1m", s.Wall)
	case shrink < 1 || shrink > 1000:
		return fmt.Errorf("weir: numbers: --shrink is %d: must be from 1 to 1000", shrink)
	case shrink > 1 && rows == "" && o.out == "":
		return errors.New("weir: numbers: --shrink is for trials: must come with --rows or --out")
	}
	if err := checkShared(s); err != nil {
		return err
	}
	return nil
}

// checkShared says what cannot be of the settings for waiters, for limits in Redis and durable ones, and for servers.
func checkShared(s *bench.Settings) error {
	switch {
	case s.WallCount < 1 || s.WallCount > 1000:
		return fmt.Errorf("weir: numbers: --wall-count is %d: must be from 1 to 1000", s.WallCount)
	case s.Redis < time.Millisecond || s.Redis > time.Minute:
		return fmt.Errorf("weir: numbers: --redis is %v: must be from 1ms to 1m", s.Redis)
	case s.RedisCount < 1 || s.RedisCount > 1000:
		return fmt.Errorf("weir: numbers: --redis-count is %d: must be from 1 to 1000", s.RedisCount)
	case s.Durable < time.Millisecond || s.Durable > time.Minute:
		return fmt.Errorf("weir: numbers: --durable is %v: must be from 1ms to 1m", s.Durable)
	case s.DurableCount < 1 || s.DurableCount > 1000:
		return fmt.Errorf("weir: numbers: --durable-count is %d: must be from 1 to 1000", s.DurableCount)
	case s.Wire < 10*time.Millisecond || s.Wire > time.Minute:
		return fmt.Errorf("weir: numbers: --wire is %v: must be from 10ms to 1m", s.Wire)
	case s.WireCount < 1 || s.WireCount > 1000:
		return fmt.Errorf("weir: numbers: --wire-count is %d: must be from 1 to 1000", s.WireCount)
	}
	return nil
}

// find checks that there is something to measure, and finds out where to write the document.
func (o *options) find(rows string) error {
	names := bench.Names()
	found := slices.ContainsFunc(names, o.match.MatchString)
	if !found {
		return fmt.Errorf("weir: numbers: --rows is %q: must match one of\n  %s", rows, strings.Join(names, "\n  "))
	}
	if o.out != "" || rows != "" {
		return nil
	}
	root, err := bench.Repository()
	if err != nil {
		return fmt.Errorf("weir: numbers: say with --out where to write the document: %w", err)
	}
	o.out = filepath.Join(root, "docs", "benchmarks", "raw.md")
	return nil
}

func show(r bench.Report, o options, stdout, stderr io.Writer) error {
	if o.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
	} else {
		r.WriteText(stdout)
	}
	if o.out == "" {
		return nil
	}
	var text bytes.Buffer
	if err := r.WriteMarkdown(&text); err != nil {
		return err
	}
	if err := os.WriteFile(o.out, text.Bytes(), 0o644); err != nil { //nolint:gosec // a document that all may read
		return fmt.Errorf("write the document: %w", err)
	}
	fmt.Fprintf(stderr, "wrote %s\n", o.out)
	return nil
}
