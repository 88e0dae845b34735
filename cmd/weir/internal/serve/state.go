package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
)

// state is where the server keeps calendar windows, so that they survive it. Its zero value is nowhere.
type state struct {
	path    string
	implied bool // its directory is that of the user
	missing bool // nothing names a directory, and --state does not say none
}

const (
	stateNone = "none"
	stateName = "limits"
)

// stateFile is the file of --state, or that of systemd, or one of the user for this configuration.
func (f *configFlags) stateFile(env func(name string) string) (state, error) {
	switch {
	case f.path == "" || f.state == stateNone:
		return state{}, nil
	case f.state != "":
		return state{path: filepath.Join(f.state, stateName)}, nil
	}
	if list := filepath.SplitList(env("STATE_DIRECTORY")); len(list) > 0 && list[0] != "" {
		return state{path: filepath.Join(list[0], stateName)}, nil
	}
	home := env("XDG_STATE_HOME")
	if !filepath.IsAbs(home) {
		if home = env("HOME"); !filepath.IsAbs(home) {
			return state{missing: true}, nil
		}
		home = filepath.Join(home, ".local", "state")
	}
	path, err := filepath.Abs(f.path)
	if err != nil {
		return state{}, flags.Inputf("weir: --config: %s", err)
	}
	sum := sha256.Sum256([]byte(path))
	own := filepath.Base(path) + "-" + hex.EncodeToString(sum[:4])
	return state{path: filepath.Join(home, "weir", own, stateName), implied: true}, nil
}

// cluster is that of the file, nil if there is none.
func (s state) cluster() *config.Cluster {
	if s.path == "" {
		return nil
	}
	return config.InFile(s.path)
}

// usable reports whether the file is to be used. One that is implied and cannot be made is not: then the log says that nothing
// survives.
func (s state) usable(log *slog.Logger) bool {
	_, err := os.Lstat(s.path)
	if !s.implied || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	err = os.MkdirAll(filepath.Dir(s.path), 0o700)
	if err == nil {
		var lock *os.File
		if lock, err = os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			_ = lock.Close()
		}
	}
	if err == nil {
		return true
	}
	beginAnew(log, err)
	return false
}

// beginAnew warns that nothing survives.
func beginAnew(log *slog.Logger, why error) {
	log.Warn("calendar windows begin anew when this server is restarted: name a directory where they can be kept by --state, "+
		"or write --state none", "error", why.Error())
}

// errNoDirectory is why a state is missing.
var errNoDirectory = errors.New(
	"the environment names no directory: neither STATE_DIRECTORY, nor an absolute path in XDG_STATE_HOME or HOME")
