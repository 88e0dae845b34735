package durable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// FileOptions configure a [File].
type FileOptions struct {
	// Logger logs, at level Warn, that the file ended with a write that was not finished. Default: nil, silent.
	Logger *slog.Logger

	disk disk
}

// File keeps the limits of one process in a file, so that they survive its restarts and crashes without a cluster. An [Owner]
// over it allows nothing before it is on disk. Nodes of its engines are nodes of this process.
//
// Every write is synced to disk before it counts. A crash, of the process or of the machine, loses the permits that records were
// ahead (see [Owner]), and gives none back.
//
// OpenFile checks the whole file. A last write that was not finished is cut off, as no request was allowed by it. Any other
// damage is an error that matches [ErrDamaged]. It cannot notice a file that was removed, cut off or overwritten with zeros at
// its end, or replaced by an older copy: permits that were taken since then are available again. While the file is open, the
// next write notices, fails, and the one after it writes the file anew. A lock that was removed is made again. If another process
// has opened the file meanwhile, it has the file, and all writes of this one fail.
//
// All records are in memory as well. The file is written anew when it is twice as long as they are and 1 MiB: beside the old one,
// whose place it takes at once. Writes wait for that. The zero File is not usable: call [OpenFile].
type File struct {
	election
	contents // its records are guarded by data, and the rest is of the goroutine that writes

	path  string
	disk  disk
	ctx   context.Context
	end   context.CancelFunc
	asked chan *fileCall
	ended chan struct{} // closed when nothing is written any more

	data sync.RWMutex

	// What follows is of the goroutine that writes.
	lock   diskLock
	file   diskFile
	size   int64
	lost   error     // why the file is not used any more, nil if it is
	failed error     // why the file is to be written anew, nil if it is not
	again  time.Time // when that is tried again
	buffer []byte
}

var errTaken = errors.New("its lock was removed, and another process has used it since: end all but one, and start that again")

// lockSuffix is at the end of the path of the lock.
const lockSuffix = ".lock"

// ErrInUse is returned if another process, or another [File] of this one, has the file open.
var ErrInUse = errors.New("weir: another process uses the file of limits")

const (
	// fileTTL is how long a term outlasts an engine that was closed. While the process lives it does not end by itself.
	fileTTL = 10 * time.Second
	// fileSlack is how much longer than twice its records a file may be.
	fileSlack = 1 << 20
	// fileRetry is how long to wait before it is tried again to write a file anew that cannot be used, and fileLater if it can.
	fileRetry = 500 * time.Millisecond
	fileLater = time.Minute
)

// OpenFile opens a file of limits, and makes it if there is none. The directory must exist. Two more files are beside it: path
// with .lock at its end, which keeps a second process from it, and .new while the file is written anew. The error names the file;
// it matches [ErrInUse], [ErrDamaged] or that of the file system.
func OpenFile(path string, o FileOptions) (*File, error) {
	if path == "" {
		return nil, &weir.OptionError{Option: "OpenFile.path", Value: `""`, Accepted: "the path of a file"}
	}
	if o.disk == nil {
		o.disk = systemDisk{}
	}
	f := &File{path: path, disk: o.disk, asked: make(chan *fileCall), ended: make(chan struct{})}
	var err error
	switch f.lock, err = f.disk.lock(path + lockSuffix); {
	case errors.Is(err, ErrInUse):
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	case err != nil:
		return nil, f.cannot("used", err)
	}
	if err = f.read(o.Logger); err != nil {
		_ = f.lock.Close()
		return nil, err
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	f.election = election{ttl: fileTTL, epoch: f.contents.epoch, begin: f.begin}
	go f.write()
	return f, nil
}

// cannot says what cannot be done.
func (f *File) cannot(what string, err error) error {
	return fmt.Errorf("weir: the file of limits %s cannot be %s: %w", f.path, what, err)
}

// read reads the file, and writes it anew if that is needed.
func (f *File) read(log *slog.Logger) error {
	old, err := f.disk.open(f.path)
	whole := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return f.cannot("used", err)
	default:
		c, size, torn, wrong := readContents(bufio.NewReaderSize(old, fileBuffer))
		if err = errors.Join(wrong, old.Close()); errors.Is(err, ErrDamaged) {
			return fmt.Errorf("weir: the file of limits %s %w: restore it, or remove it, with which all limits in it begin anew",
				f.path, wrong)
		}
		if err != nil {
			return f.cannot("read", err)
		}
		if torn > 0 && log != nil {
			log.Warn("the last write to the file of limits was not finished: it was not answered, and is cut off", "file", f.path,
				"bytes", torn)
		}
		f.contents, f.size, whole = *c, size, torn == 0
	}
	if whole {
		f.file, err = f.disk.extend(f.path)
	} else {
		err = f.rewrite()
	}
	if err != nil {
		return f.cannot("written", err)
	}
	return nil
}

// Path is that of the file.
func (f *File) Path() string { return f.path }

// Engine is the file as one more node of this process sees it.
func (f *File) Engine() *FileEngine {
	ctx, end := context.WithCancel(f.ctx)
	return &FileEngine{localEngine: localEngine{election: &f.election, ctx: ctx, end: end}, file: f}
}

// Close closes the file, when what is being written is on disk. Its engines are closed, and terms that were not resigned have
// ended as if the process had died.
func (f *File) Close() error {
	f.end()
	f.mu.Lock()
	if f.owner != nil {
		f.owner.close()
	}
	f.mu.Unlock()
	<-f.ended
	return nil
}

// FileEngine is an [Engine] of a node of a [File].
type FileEngine struct {
	localEngine

	file *File
}

var _ Engine = (*FileEngine)(nil)

// Campaign implements [Engine].
func (e *FileEngine) Campaign(ctx context.Context, address string) (Term, error) { //nolint:ireturn // there are several
	t, err := e.campaign(ctx, address)
	if err != nil {
		return nil, err
	}
	return &fileTerm{t, e.file}, nil
}

// fileTerm implements [Term].
type fileTerm struct {
	*localTerm

	file *File
}

func (t *fileTerm) Load(ctx context.Context, name string) (value []byte, revision int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, fmt.Errorf("weir: nothing was read: %w", err)
	}
	t.file.data.RLock()
	defer t.file.data.RUnlock()
	r := t.file.records.get(name)
	return slices.Clone(r.Value), r.Revision, nil
}

func (t *fileTerm) List(ctx context.Context, prefix string, most int) ([]Named, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("weir: nothing was read: %w", err)
	}
	t.file.data.RLock()
	defer t.file.data.RUnlock()
	return t.file.records.list(prefix, most), nil
}

func (t *fileTerm) Page(ctx context.Context, prefix, after string, most int) ([]Named, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("weir: nothing was read: %w", err)
	}
	t.file.data.RLock()
	defer t.file.data.RUnlock()
	return t.file.records.page(prefix, after, most), nil
}

func (t *fileTerm) Store(ctx context.Context, writes []Write) (revision int64, err error) {
	if err := CheckWrites(writes); err != nil {
		return 0, err
	}
	select {
	case <-t.done:
		return 0, ErrDeposed
	default: // if it ends before the write begins, do finds that only once there is another one, which is soon enough
	}
	c := &fileCall{epoch: t.epoch, writes: slices.Clone(writes), done: make(chan struct{})}
	for i := range c.writes {
		if w := &c.writes[i]; w.Value != nil {
			w.Value = append(make([]byte, 0, max(1, len(w.Value))), w.Value...)
		}
	}
	return t.file.call(ctx, c)
}

// fileCall is a call of Store, or a term that begins.
type fileCall struct {
	epoch  int64
	writes []Write
	begins bool

	done     chan struct{}
	revision int64
	err      error
}

// call has something written.
func (f *File) call(ctx context.Context, c *fileCall) (revision int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("weir: nothing was written: %w", err)
	}
	select {
	case f.asked <- c:
	case <-f.ended:
		return 0, ErrEngineClosed
	case <-ctx.Done():
		return 0, fmt.Errorf("weir: nothing was written: %w", ctx.Err())
	}
	select {
	case <-c.done:
		return c.revision, c.err
	case <-ctx.Done():
		return 0, fmt.Errorf("weir: it is not known whether it was written: %w", ctx.Err())
	}
}

// begin notes a term. Whatever was being written for the one before has been written then, or never will.
func (f *File) begin(epoch int64) error {
	_, err := f.call(f.ctx, &fileCall{epoch: epoch, begins: true, done: make(chan struct{})})
	return err
}

// write writes until the file is closed.
func (f *File) write() {
	defer close(f.ended)
	for {
		select {
		case c := <-f.asked:
			c.revision, c.err = f.do(c)
			close(c.done)
			continue
		case <-f.ctx.Done():
		}
		if f.file != nil {
			_ = f.file.Close() // all of it was synced
		}
		_ = f.lock.Close()
		return
	}
}

// do carries out a call.
func (f *File) do(c *fileCall) (revision int64, err error) {
	if !c.begins {
		if c.epoch != f.contents.epoch {
			return 0, ErrDeposed
		}
		for i := range c.writes {
			if f.records.get(c.writes[i].Name).Revision != c.writes[i].Revision {
				return 0, ErrConflict
			}
		}
	}
	if err = f.renew(); err != nil {
		return 0, f.cannot("written", err)
	}
	kind := frameWrites
	if c.begins {
		kind = frameTerm
	}
	b := beginFrame(f.buffer[:0], kind, f.frames+1)
	if c.begins {
		b = appendCounts(b, c.epoch)
	} else {
		b = appendWrites(b, f.revision+1, c.writes)
	}
	b = endFrame(b)
	f.buffer = b
	if _, err = f.file.Write(b); err == nil {
		err = f.file.Sync()
	}
	if err == nil { // or another process may have read the file before
		err = f.keep()
	}
	if err != nil { // what is in the file, and on disk, is not known: it is not used any more
		f.failed, f.again = err, time.Time{}
		return 0, f.cannot("written", err)
	}
	f.size += int64(len(b))
	f.frames++
	f.take(c)
	return f.revision, nil
}

// keep returns an error if other processes are not kept from the file. A lock that was removed is made again; but if another
// process has had the file meanwhile, it is that of the other one.
func (f *File) keep() error {
	if f.lost != nil || f.lock.held() {
		return f.lost
	}
	lock, err := f.disk.lock(f.path + lockSuffix)
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong
	}
	_ = f.lock.Close()
	f.lock = lock
	if f.file == nil {
		f.lost = errTaken
	} else if failed := f.file.Sync(); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		f.lost = fmt.Errorf("%w: %w", errTaken, failed)
	}
	return f.lost
}

// renew writes the file anew, if it cannot be used or is too long.
func (f *File) renew() error {
	if err := f.keep(); err != nil {
		return err
	}
	if f.failed == nil && f.size <= 2*f.records.bytes+fileSlack {
		return nil
	}
	if time.Now().Before(f.again) {
		return f.failed
	}
	err := f.rewrite()
	switch {
	case err == nil:
		f.again = time.Time{}
		return nil
	case f.failed != nil:
		f.failed, f.again = err, time.Now().Add(fileRetry)
	default:
		f.again = time.Now().Add(fileLater)
	}
	return f.failed
}

// take takes in what is on disk.
func (f *File) take(c *fileCall) {
	f.data.Lock()
	defer f.data.Unlock()
	if c.begins {
		f.contents.epoch = c.epoch
		return
	}
	f.revision++
	for i := range c.writes {
		if w := &c.writes[i]; w.Value == nil {
			f.records.remove(w.Name)
		} else {
			f.records.put(Named{Name: w.Name, Value: w.Value, Revision: f.revision})
		}
	}
}
