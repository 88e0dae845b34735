package serve

import (
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// ratelimitFlags are those of a configuration of envoyproxy/ratelimit.
type ratelimitFlags struct {
	path        string
	algorithm   string
	consistency string
	merge       bool
	shadow      bool
	quota       bool
	// ignoreDotFiles is about the directory.
	ignoreDotFiles bool
}

func (f *ratelimitFlags) register(fs *pflag.FlagSet) {
	f.algorithm, f.consistency = ratelimitconfig.FixedWindow.String(), policy.ConsistencyLocal.String()
	fs.Var(flags.File(&f.path), "ratelimit-config",
		"configuration of envoyproxy/ratelimit, a file or all files of a directory and those below it, for --grpc, read again "+
			"when it changes (default: none, descriptors are matched by the rules of --config)")
	fs.Var(flags.OneOf(&f.algorithm, ratelimitconfig.FixedWindow.String(), ratelimitconfig.TokenBucket.String(),
		ratelimitconfig.SlidingWindow.String(), ratelimitconfig.SlidingCounter.String()), "ratelimit-algorithm",
		"how its limits are counted that do not say")
	fs.Var(flags.OneOf(&f.consistency, policy.ConsistencyLocal.String(), policy.ConsistencyCoherent.String(),
		policy.ConsistencyLeased.String(), policy.ConsistencyOptimistic.String()), "ratelimit-consistency",
		"how its limits are shared through the store that do not say")
	fs.BoolVar(&f.merge, "ratelimit-merge", false, "accept several of its files with the same domain (default: a mistake)")
	fs.BoolVar(&f.ignoreDotFiles, "ratelimit-ignore-dotfiles", false,
		"leave out its files and directories that begin with a dot (default: read them)")
	fs.BoolVar(&f.quota, "ratelimit-quota", false,
		"make all its limits quotas: refuse what is over all of them (default: those with quota_mode)")
	fs.BoolVar(&f.shadow, "ratelimit-shadow", false, "refuse nothing by it, and count what would be refused (default: refuse)")
}

// check finds flags that do not go together.
func (f *ratelimitFlags) check(fs *pflag.FlagSet, grpc string) error {
	if f.path == "" {
		return flags.Alone(fs, "needs --ratelimit-config", "ratelimit-algorithm", "ratelimit-consistency", "ratelimit-merge",
			"ratelimit-shadow", "ratelimit-quota", "ratelimit-ignore-dotfiles")
	}
	if grpc == "" {
		return flags.Errorf("--ratelimit-config needs --grpc, where its limits are asked for")
	}
	return nil
}

// parse reads the files. Its policies are apart from those of set, and are shared only if there is a store.
func (f *ratelimitFlags) parse(files []live.File, set *policy.Set, hasStore bool) (*ratelimitconfig.Config, error) {
	o := ratelimitconfig.Options{Merge: f.merge, Shadow: f.shadow, Quota: f.quota, NoStore: !hasStore}
	// They are values that the flags accept.
	_ = o.Algorithm.UnmarshalText([]byte(f.algorithm))
	_ = o.Consistency.UnmarshalText([]byte(f.consistency))
	if o.NoStore && o.Consistency.Shared() {
		return nil, flags.Errorf("--ratelimit-consistency %q needs a store: --store redis://host:6379, or that of --config",
			f.consistency)
	}
	taken := make(map[string]bool, len(set.Policies))
	for i := range set.Policies {
		taken[set.Policies[i].Name] = true
	}
	o.Taken = func(name string) bool { return taken[name] }
	return ratelimitconfig.Parse(files, o)
}
