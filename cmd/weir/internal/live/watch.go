package live

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/regularfile"
)

const (
	// lookEvery is how often it is looked whether the files have changed, and idle how many times as long as a look takes: of
	// many files it takes longer.
	lookEvery = 250 * time.Millisecond
	idle      = 20
	// longest is for how long they are not looked at, and not read if they look different each time, at most.
	longest = 2 * time.Second
	// coarse is how exactly a file system tells when a file was written, at worst.
	coarse = 2 * time.Second
)

// Watch reloads when the files change, until ctx ends. It looks at them again and again, wherever symbolic links lead to at that
// time, and so needs nothing of the file system: it sees a file that is renamed over the old one, one that is deleted and made
// again, and the swap of a link, such as that of a mounted ConfigMap. They are read once they look the same twice, as many
// editors write a file in several steps.
//
// Watch returns at once; the channel is closed when it has ended.
func (l *Limits) Watch(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.watch(ctx)
	}()
	return ended
}

func (l *Limits) watch(ctx context.Context) {
	var read, last look // at first none: the files may have changed since the first load
	var changed time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := l.look()
		settled := now.same(&last)
		last = now
		switch {
		case now.same(&read) && (!read.recent || now.recent):
			changed = time.Time{}
		case settled || !changed.IsZero() && now.at.Sub(changed) > longest:
			// The error is logged and kept for the status, unless it is that nothing has changed.
			err := l.reloadIfChanged() //nolint:contextcheck // overrides that end ask their store
			read, changed = now, time.Time{}
			if _, unread := errors.AsType[*fs.PathError](err); unread {
				read = look{} // it may look the same once it can be read, as where there were too many open files
			}
		case changed.IsZero():
			changed = now.at
		}
		timer.Reset(min(max(lookEvery, idle*time.Since(now.at)), longest))
	}
}

// look is how the files look, without being read.
type look struct {
	at    time.Time
	names []string
	files []fs.FileInfo
	// recent tells that one was written so shortly before that it would look the same if it were written once more.
	recent bool
}

func (l *Limits) look() look {
	k := look{at: time.Now()}
	if l.o.Path != "" {
		k.names = append(k.names, l.o.Path)
	}
	if l.o.More != "" {
		k.names = append(k.names, l.o.More)
		if info, err := os.Stat(l.o.More); err == nil && info.IsDir() {
			found, _ := findMore(l.o.More, l.o.IgnoreDotFiles) // what is wrong with it is told when it is read
			k.names = append(k.names, found...)
		}
	}
	k.files = regularfile.Look(k.names...)
	k.recent = slices.ContainsFunc(k.files, func(f fs.FileInfo) bool {
		return f != nil && !f.IsDir() && k.at.Sub(f.ModTime()).Abs() < coarse
	})
	return k
}

// same reports whether the same files look the same.
func (k *look) same(other *look) bool {
	return slices.Equal(k.names, other.names) && regularfile.Same(k.files, other.files)
}
