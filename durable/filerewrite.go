package durable

import (
	"bufio"
	"errors"
)

// recordsInFrame is about how many bytes a frame of records has, and fileBuffer how many are read and written at a time.
const (
	recordsInFrame = 64 << 10
	fileBuffer     = 64 << 10
)

// rewrite writes a file with the records that there are, which takes the place of the one before once it is on disk. If it fails
// before, that stays in use.
func (f *File) rewrite() error {
	name := f.path + ".new"
	size, frames, err := f.writeNew(name)
	if err != nil {
		f.disk.remove(name) // which would need room
		return err
	}
	if f.file != nil {
		_ = f.file.Close() // nothing of it is needed any more
		f.file = nil
	}
	if err = f.disk.rename(name, f.path); err == nil {
		f.file, err = f.disk.extend(f.path)
	}
	if f.failed = err; err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	f.size, f.frames = size, frames
	return nil
}

// writeNew writes a whole file, to disk.
func (f *File) writeNew(name string) (size int64, frames uint64, err error) {
	next, err := f.disk.create(name)
	if err != nil {
		return 0, 0, err //nolint:wrapcheck // it names the file
	}
	size, frames, err = f.writeAll(next)
	if err == nil {
		err = next.Sync()
	}
	return size, frames, errors.Join(err, next.Close())
}

// writeAll writes a whole file, and returns how many bytes and frames it has.
func (f *File) writeAll(to diskFile) (size int64, frames uint64, err error) {
	w := bufio.NewWriterSize(to, fileBuffer)
	put := func(b []byte) {
		n, _ := w.Write(b) // its error is that of Flush
		size += int64(n)
	}
	put([]byte(fileHead))
	b := beginFrame(nil, frameStart, 1)
	b = appendCounts(b, f.contents.epoch, f.revision, int64(f.records.count))
	put(endFrame(b))
	frames = 1
	b = b[:0]
	for _, chunk := range f.records.chunks {
		for i := range chunk {
			r := &chunk[i]
			if len(b) == 0 {
				frames++
				b = beginFrame(b, frameRecords, frames)
			}
			b = appendString(b, r.Name)
			b = appendCounts(b, r.Revision)
			b = appendString(b, r.Value)
			if len(b) >= recordsInFrame {
				put(endFrame(b))
				b = b[:0]
			}
		}
	}
	if len(b) > 0 {
		put(endFrame(b))
	}
	return size, frames, w.Flush()
}
