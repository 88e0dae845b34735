package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must happen before the file is read: many editors write it in several steps.
	quiet = 100 * time.Millisecond
	// longest is for how long it is not read at most, if something happens all the time.
	longest = 2 * time.Second
)

// Watch reloads when the file changes, until ctx ends. It watches directories, not the file, and so sees a file that is
// renamed over the old one, one that is deleted and made again, and the swap of any symbolic link on the way to it, such as
// that of a mounted ConfigMap. What happens to other files of these directories costs a look at the configuration.
//
// The error is that nothing can be watched. Watch returns at once; the channel is closed when it has ended.
func (l *Limits) Watch(ctx context.Context) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("weir: watching %s: %w", l.name(), err)
	}
	d := &directories{watched: w, path: l.o.Path, more: l.o.More, ignoreDotFiles: l.o.IgnoreDotFiles}
	if err := d.follow(); err != nil {
		_ = w.Close() // nothing was watched
		return nil, fmt.Errorf("weir: watching %s: %w", l.name(), err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer w.Close() //nolint:errcheck // nothing is watched any more
		l.watch(ctx, w, d)
	}()
	return ended, nil
}

func (l *Limits) watch(ctx context.Context, w *fsnotify.Watcher, d *directories) {
	// What has changed between the first load and now.
	l.look(d) //nolint:contextcheck // overrides that end ask their store
	wait := time.NewTimer(0)
	<-wait.C
	var since time.Time
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events:
			if !ok {
				return
			}
			if !waiting {
				since, waiting = time.Now(), true
			}
			if time.Since(since) < longest {
				wait.Reset(quiet)
			}
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			l.log.Error("watching the configuration", "error", err.Error())
			if !waiting {
				since, waiting = time.Now(), true
				wait.Reset(quiet)
			}
		case <-wait.C:
			waiting = false
			l.look(d) //nolint:contextcheck // overrides that end ask their store
		}
	}
}

// look follows the file to where it is now, and reloads it if it has changed.
func (l *Limits) look(d *directories) {
	if err := d.follow(); err != nil {
		l.log.Error("watching the configuration", "error", err.Error())
	}
	if err := l.reloadIfChanged(); err != nil && !errors.Is(err, ErrUnchanged) {
		return // it is logged and kept for the status
	}
}

// directories are those that are watched.
type directories struct {
	watched watchList
	// path is a file, more a file or a directory of files; either may be "".
	path, more     string
	ignoreDotFiles bool
}

// watchList is the part of an [fsnotify.Watcher] that says what is watched.
type watchList interface {
	Add(dir string) error
	Remove(dir string) error
	WatchList() []string
}

// wanted are the directories to be watched now.
func (d *directories) wanted() []string {
	var dirs []string
	if d.path != "" {
		dirs = directoriesOf(d.path)
	}
	if d.more == "" {
		return dirs
	}
	dirs = append(dirs, directoriesOf(d.more)...)
	if info, err := os.Stat(d.more); err == nil && info.IsDir() {
		found, _ := findMore(d.more, d.ignoreDotFiles) // what cannot be read cannot be watched
		dirs = append(dirs, found.dirs...)
		for _, name := range found.links {
			dirs = append(dirs, directoriesOf(name)...)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// follow watches all directories in which something can happen that makes the path mean another file, and no others.
func (d *directories) follow() error {
	wanted := d.wanted()
	var errs []error
	for range mostLooks {
		errs = errs[:0]
		for _, dir := range wanted {
			if err := d.watched.Add(dir); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			}
		}
		for _, dir := range d.watched.WatchList() {
			if !slices.Contains(wanted, dir) {
				_ = d.watched.Remove(dir) // it is gone otherwise
			}
		}
		// No event comes of what has happened before they were watched, such as that a missing one was made.
		before := wanted
		if wanted = d.wanted(); slices.Equal(wanted, before) {
			break
		}
	}
	if len(errs) == len(wanted) {
		return errors.Join(errs...)
	}
	return nil
}

// mostLooks is how often it is looked at most which directories there are, if others are there each time.
const mostLooks = 10

// mostLinks is how many symbolic links are followed.
const mostLinks = 40

// directoriesOf are the directory of the file that path means, and those of all symbolic links on the way to it. Where
// something is missing, they end with the directory in which it is.
func directoriesOf(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	root := filepath.VolumeName(path) + string(filepath.Separator)
	at, rest, links := root, strings.TrimPrefix(path, root), 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, string(filepath.Separator))
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil: // it may be made later
			add(at)
			return dirs
		case info.Mode()&os.ModeSymlink != 0:
			add(at)
			target, err := os.Readlink(next)
			if links++; err != nil || links > mostLinks {
				return dirs
			}
			if filepath.IsAbs(target) {
				root = filepath.VolumeName(target) + string(filepath.Separator)
				at, target = root, strings.TrimPrefix(target, root)
			}
			rest = target + string(filepath.Separator) + rest
		case rest == "" || !info.IsDir():
			add(at)
			at = next
		default:
			at = next
		}
	}
	return dirs
}
