package serve

import (
	"log/slog"
	"os"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// reader reads a configuration again and again. Its store and its cluster are those of the first time.
type reader struct {
	flag  *config.Store // of --store, nil if it is not given
	rates *ratelimitFlags
	store *config.Store
	// cluster is that of the first time as well, or the state file where there may be policies that need it.
	cluster *config.Cluster
	known   bool // store and cluster are those of a file that was read
	needed  bool // the cluster is needed by policies, or is that of the file
	state   state
	begin   func() error // begins to use the state file, if it was not needed yet
	log     *slog.Logger
}

// parse reads a configuration, and that of envoyproxy/ratelimit.
func (r *reader) parse(files live.Files) (parsed live.Parsed, err error) {
	parsed.Set = &policy.Set{}
	if files.File != nil {
		parsed, err = r.parseOwn(files.File)
	} else if !r.known {
		r.store, r.known = r.flag, true
	}
	if err != nil || files.More == nil {
		return parsed, err
	}
	c, err := r.rates.parse(files.More, parsed.Set, r.store != nil)
	if err != nil {
		return live.Parsed{}, err
	}
	parsed.Set.Policies = append(parsed.Set.Policies, c.Policies...)
	parsed.Warnings, parsed.Extra = append(parsed.Warnings, lines(c.Warnings)...), c
	return parsed, nil
}

// parseOwn reads the configuration of weir.
func (r *reader) parseOwn(file *live.File) (live.Parsed, error) {
	secrets := make(map[string]string)
	options := config.Options{HasStore: r.flag != nil, StateFile: r.state.path, Env: func(name string) (string, bool) {
		value, ok := os.LookupEnv(name)
		if ok {
			secrets[name] = value
		}
		return value, ok
	}}
	f, err := config.Parse(file.Name, file.Data, options)
	if err == nil && r.state.missing && f.Cluster == nil {
		r.warnMissing(file, options)
	}
	if err == nil && !r.known && f.Cluster.Same(r.state.cluster()) && !r.state.usable(r.log) {
		r.state, options.StateFile = state{}, ""
		f, err = config.Parse(file.Name, file.Data, options)
	}
	if err != nil {
		return live.Parsed{}, err
	}
	store := f.Store
	if r.flag != nil {
		store = store.At(r.flag)
	}
	kept := f.Cluster
	if kept == nil {
		kept = r.state.cluster()
	}
	switch {
	case !r.known:
		r.store, r.cluster, r.known, r.needed = store, kept, true, f.Cluster != nil
	case !store.Same(r.store):
		return live.Parsed{}, f.StoreErrors("cannot change while the server runs, other than policies and rules",
			"restart the server, or take the change back")
	case !kept.Same(r.cluster):
		return live.Parsed{}, f.ClusterErrors("cannot change while the server runs, other than policies and rules",
			"restart the server, or take the change back")
	}
	if f.Cluster != nil && r.begin != nil {
		if err := r.begin(); err != nil {
			return live.Parsed{}, f.ClusterErrors(strings.TrimPrefix(err.Error(), "weir: "),
				"write durability: memory, or restart the server with another --state")
		}
	}
	return live.Parsed{Set: f.Set, Warnings: lines(f.Warnings), Secrets: secrets}, nil
}

// warnMissing warns, once, if there are policies that a file would keep.
func (r *reader) warnMissing(file *live.File, options config.Options) {
	options.StateFile = stateName
	if f, err := config.Parse(file.Name, file.Data, options); err == nil && f.Cluster != nil {
		beginAnew(r.log, errNoDirectory)
		r.state.missing = false
	}
}

// lines are warnings as the log has them.
func lines(warnings []yamlread.Mistake) []string {
	all := make([]string, len(warnings))
	for i, w := range warnings {
		all[i] = w.String()
	}
	return all
}
