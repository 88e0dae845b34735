package replay

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// totalSize is the size of all files together, 0 if it is not known. A file that is not there is an error, and so is a
// directory, so that nothing is done for a name that was misspelt.
func totalSize(files []string) (int64, error) {
	var total int64
	known := true
	for _, name := range files {
		if name == "-" {
			known = false
			continue
		}
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = syscall.EISDIR
		}
		if err != nil {
			if failed, ok := errors.AsType[*fs.PathError](err); ok {
				err = failed.Err
			}
			return 0, flags.Errorf("FILE %q: %v: must be an access log, or - for the standard input", name, err)
		}
		known = known && info.Mode().IsRegular()
		total += info.Size()
	}
	if !known {
		return 0, nil
	}
	return total, nil
}

// mostExamples is how many malformed lines are shown.
const mostExamples = 5

// lineCounts are the counts of the lines of all logs.
type lineCounts struct {
	lines, malformed, requests int64
	examples                   []malformedLine
}

// readAll reads all files, and calls read with each record. If it ends early, what was read until then counts.
func (c *lineCounts) readAll(ctx context.Context, read func(*accesslog.Record), files []string, stdin io.Reader, b *bar) error {
	defer b.end()
	for _, name := range files {
		source, err := open(ctx, name, stdin)
		if err != nil {
			return err
		}
		reader := accesslog.NewReader(readAhead(ctx, source))
		err = readRecords(ctx, reader, read, func() { b.at(source.Offset()) })
		b.next(source.Offset())
		c.add(name, reader)
		// The source is only read, so nothing is lost if it cannot be closed.
		_ = source.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens a log. Where it is a named pipe, that waits for a writer, but not beyond the end of ctx.
func open(ctx context.Context, name string, stdin io.Reader) (*accesslog.Source, error) {
	var source *accesslog.Source
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		source, err = accesslog.Open(name, stdin)
	}()
	select {
	case <-opened:
		return source, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *lineCounts) add(name string, r *accesslog.Reader) {
	c.lines += int64(r.Lines())
	c.malformed += int64(r.Malformed())
	c.requests += int64(r.Records())
	for _, e := range r.Errors() {
		if len(c.examples) < mostExamples {
			c.examples = append(c.examples, malformedLine{File: name, Line: e.Line, Reason: e.Reason, Text: e.Text})
		}
	}
}

// unreadable is an error if there were lines, and none of them was a request: they are of something else than requests, or in a
// format that is not read. An empty log has no request either, and nothing is wrong with it.
func (c *lineCounts) unreadable() error {
	if c.requests > 0 || c.malformed == 0 {
		return nil
	}
	none := "none of the " + terminal.Number(c.malformed) + " lines is a request"
	if c.malformed == 1 {
		none = "the only line is no request"
	}
	return flags.Inputf("access log: %s: give a log in the common or combined format, or with a JSON object on each line; "+
		"the malformed lines say what was expected", none)
}
