package etcd

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// ErrRepair is returned if what a node had on its disk is lost or damaged, or the node was removed from its cluster. It must not
// take part again under its old identity: remove it from its cluster, and add it again with an empty directory and Join.
var ErrRepair = errors.New("this node must not take part with what is on its disk")

// mark says what a directory has been used for, in a file beside that of etcd.
type mark struct {
	Version int `json:"version"`
	// Disk is a random name of the directory: one that was emptied gets another one.
	Disk string `json:"disk"`
	// Cluster is what the nodes have agreed on that form the cluster, "" before that.
	Cluster string `json:"cluster,omitempty"`
	// Used says that etcd was started here, so that its files must be there.
	Used bool `json:"used,omitempty"`

	path string
}

const (
	markFile    = "weir.json"
	markVersion = 1
	diskBytes   = 16
)

func markPath(dir string) string { return filepath.Join(dir, markFile) }

// readMark reads the mark of a directory, or makes one.
func readMark(dir string) (*mark, error) {
	m := &mark{Version: markVersion, path: markPath(dir)}
	text, err := os.ReadFile(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := make([]byte, diskBytes)
		_, _ = rand.Read(name) // it never fails
		m.Disk = hex.EncodeToString(name)
		err = m.write()
		return m, err
	case err != nil:
		return nil, err //nolint:wrapcheck // it names the file
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil || m.Version != markVersion || len(m.Disk) != 2*diskBytes {
		return nil, fmt.Errorf("%w: %s is damaged", ErrRepair, m.path)
	}
	return m, nil
}

// write puts the mark on the disk.
func (m *mark) write() error {
	text, err := json.Marshal(m)
	if err != nil {
		return err //nolint:wrapcheck // it cannot happen
	}
	f, err := os.CreateTemp(filepath.Dir(m.path), markFile+".*.tmp")
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone if it was renamed
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), m.path)
	}
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	return syncDirectory(filepath.Dir(m.path))
}

func syncDirectory(path string) error {
	d, err := os.Open(path) //nolint:gosec // the directory is the choice of the operator
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(d.Sync(), d.Close())
}

// use notes that etcd is about to be started.
func (m *mark) use() error {
	if m.Used {
		return nil
	}
	m.Used = true
	return m.write()
}

// hasLog reports whether etcd has a log in a directory, without which it begins anew.
func hasLog(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// repair says what an operator does with a node that must not take part any more.
func (o *EmbeddedOptions) repair() string {
	if len(o.Peers) < 2 {
		return fmt.Sprintf("restore a backup of %s; or empty it, and all limits begin anew", o.Directory)
	}
	return fmt.Sprintf("while a majority of the other nodes is up, run `weir cluster remove %s` and %s", o.Name, o.addAgain())
}

// addAgain says how a node comes back that is not in its cluster any more.
func (o *EmbeddedOptions) addAgain() string {
	return fmt.Sprintf("`weir cluster add %s %s` at one of them, then empty %s, set `join: true` in the configuration of this "+
		"node, and start it", o.Name, o.Peers[o.Name], o.Directory)
}

// removed is an error that matches [ErrRepair] and says what to do.
func (o *EmbeddedOptions) removed() error {
	return fmt.Errorf("%w: %w; stop it, or to have it back: while the other nodes are up, run %s",
		ErrRepair, errRemoved, o.addAgain())
}

// wiped is an error that matches [ErrRepair] and says what to do.
func (o *EmbeddedOptions) wiped(format string, args ...any) error {
	return fmt.Errorf("%w: %w; to repair it: %s", ErrRepair, fmt.Errorf(format, args...), o.repair())
}
