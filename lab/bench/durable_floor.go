package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	inMemory          = "memory"
	unknownFilesystem = "unknown"
)

// onDisk is a directory for temporary files that outlive a loss of power: one of those of the system, or else the current one.
func onDisk() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("bench: the current directory: %w", err)
	}
	for _, dir := range []string{os.TempDir(), "/var/tmp", here} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && filesystem(dir) != inMemory {
			return dir, nil
		}
	}
	return "", errors.New("bench: the directories for temporary files and the current one are in memory, where writes cost " +
		"nothing: set TMPDIR to a directory on a disk")
}

// recordBytes is how long a record of the floor is: about as long as one of a limit.
const recordBytes = 256

// floorWriters are how many writers the floors have.
func floorWriters() []int { return []int{1, 32} }

// writes has some writers write again and again for so long; each write was durable when it returned.
func (l durableLoad) writes(
	ctx context.Context, writers int, write func(ctx context.Context, writer int) error, h *histogram,
) (m durableSample, err error) {
	keys := make([]string, writers)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	var next atomic.Int64
	caller := func() redisDecide {
		writer := int(next.Add(1)) - 1
		return func(string) (bool, error) { return true, write(ctx, writer) }
	}
	for _, part := range []time.Duration{warmPart, 1} {
		h.reset()
		next.Store(0)
		if m, err = l.drive(ctx, caller, writers, l.time/part, 1, h); err != nil {
			return m, err
		}
	}
	m.latency = h.latency()
	return m, nil
}

// etcdPut writes a record through the client, without a condition.
func (l durableLoad) etcdPut(ctx context.Context, c *durableCluster, writers int, h *histogram) (durableSample, error) {
	value := string(bytes.Repeat([]byte{'x'}, recordBytes))
	put := func(ctx context.Context, writer int) error {
		_, err := c.server.Client().Put(ctx, "/floor/"+strconv.Itoa(writer), value)
		return err //nolint:wrapcheck // it ends the measurement
	}
	before, err := c.revision(ctx)
	if err != nil {
		return durableSample{}, err
	}
	m, err := l.writes(ctx, writers, put, h)
	if err != nil {
		return m, fmt.Errorf("bench: durable, etcd put: %w", err)
	}
	after, err := c.revision(ctx)
	if err == nil && after-before < m.granted {
		err = fmt.Errorf("bench: durable: %d puts of etcd left only %d revisions: the row does not measure what it says",
			m.granted, after-before)
	}
	return m, err
}

// fsyncRecords is how many records the file has that the floor of the disk writes again and again: etcd writes to a file that was
// made large before as well, so that no write changes its size.
const fsyncRecords = 4096

// diskFloor writes a record to a file and has it reach the disk, one after the other.
func (l durableLoad) diskFloor(ctx context.Context, h *histogram) (m durableSample, err error) {
	place, err := onDisk()
	if err != nil {
		return m, err
	}
	dir, err := os.MkdirTemp(place, ".weir-bench-disk-")
	if err != nil {
		return m, fmt.Errorf("bench: a directory for the floor of the disk: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f, err := os.Create(filepath.Join(dir, "log")) //nolint:gosec // in a directory of its own
	if err != nil {
		return m, fmt.Errorf("bench: a file for the floor of the disk: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err = f.Write(make([]byte, fsyncRecords*recordBytes)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return m, fmt.Errorf("bench: a file for the floor of the disk: %w", err)
	}
	record, at := bytes.Repeat([]byte{'x'}, recordBytes), int64(0)
	return l.writes(ctx, 1, func(context.Context, int) error {
		if _, err := f.WriteAt(record, at%fsyncRecords*recordBytes); err != nil {
			return err //nolint:wrapcheck // it ends the measurement
		}
		at++
		return syncData(f)
	}, h)
}
