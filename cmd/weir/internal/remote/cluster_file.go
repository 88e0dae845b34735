package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// inFile is the only node of a process that keeps its limits in a file.
type inFile struct {
	file *durable.File
	node *durable.Node
}

// openFile opens the file of a configuration, and makes it and its directory if there is none.
func openFile(c *config.Cluster, log *slog.Logger) (Joined, error) { //nolint:ireturn // there are several
	if err := os.MkdirAll(filepath.Dir(c.File), 0o700); err != nil {
		return nil, fmt.Errorf("the directory of the file of limits cannot be made: %w: name another place by --state, "+
			"or cluster.file of the configuration", err)
	}
	file, err := durable.OpenFile(c.File, durable.FileOptions{Logger: log})
	if errors.Is(err, durable.ErrInUse) {
		return nil, fmt.Errorf("%w: end that one, or name another place by --state, or cluster.file of the configuration", err)
	}
	if err != nil {
		return nil, err
	}
	node, err := durable.NewNode(durable.NodeOptions{
		Engine: file.Engine(), Address: "alone", Logger: log,
		Owner: durable.OwnerOptions{Reserve: c.Reserve, MaxKeys: c.MaxKeys, Logger: log},
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &inFile{file, node}
	f.settle()
	return f, nil
}

// settle waits until the node owns the limits, which is at once unless the disk is slow or full.
func (f *inFile) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	owners, err := f.file.Engine().Watch(ctx)
	if err != nil {
		return // it was closed
	}
	for o := range owners {
		if o.Address != "" {
			return
		}
	}
}

// Node implements [Joined].
func (f *inFile) Node() *durable.Node { return f.node }

// Failed implements [Joined]. A file that cannot be written is tried again.
func (*inFile) Failed() <-chan struct{} { return nil }

// Err implements [Joined].
func (*inFile) Err() error { return nil }

// owns returns nil, or why nothing can be allowed now.
func (f *inFile) owns() error {
	if f.node.Ownership().Address == "" {
		return fmt.Errorf("%w: the file of limits %s cannot be written", store.ErrUnavailable, f.file.Path())
	}
	return nil
}

// Close implements [Joined].
func (f *inFile) Close() error { return errors.Join(f.node.Close(), f.file.Close()) }

// IdleCluster is the cluster of a process that may keep limits in a file, and does not need it yet. It is used once it is begun.
func IdleCluster(c *config.Cluster, log *slog.Logger) *Cluster {
	open := func(context.Context) (Joined, error) { return openFile(c, log) } //nolint:contextcheck // a node outlasts opening
	l := newCluster(c.String(), "", log, open)
	l.idle.Store(true)
	close(l.ended)
	return l
}

// Begin opens the file of a cluster that was idle, once.
func (l *Cluster) Begin() error {
	if !l.idle.Load() {
		return nil
	}
	joined, err := l.join(l.ctx)
	if err != nil {
		return err
	}
	l.use(joined)
	l.idle.Store(false)
	return nil
}

// Idle reports whether the cluster is not needed yet.
func (l *Cluster) Idle() bool { return l.idle.Load() }
