package offline

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/config/yamlread"
)

// rateFiles are the flags for configurations of envoyproxy/ratelimit.
type rateFiles struct {
	given     bool
	merge     bool
	algorithm string
	// ignoreDotFiles is about a directory.
	ignoreDotFiles bool
}

func (f *rateFiles) register(fs *pflag.FlagSet) {
	f.algorithm = ratelimitconfig.FixedWindow.String()
	fs.BoolVar(&f.given, "ratelimit", false,
		"each FILE is a configuration of envoyproxy/ratelimit: a file, or all files of a directory and those below it")
	fs.BoolVar(&f.merge, "ratelimit-merge", false, "accept several of its files with the same domain (default: a mistake)")
	fs.BoolVar(&f.ignoreDotFiles, "ratelimit-ignore-dotfiles", false,
		"leave out its files and directories that begin with a dot (default: read them)")
	fs.Var(flags.OneOf(&f.algorithm, ratelimitconfig.FixedWindow.String(), ratelimitconfig.TokenBucket.String(),
		ratelimitconfig.SlidingWindow.String(), ratelimitconfig.SlidingCounter.String()), "ratelimit-algorithm",
		"how its limits are counted that do not say")
}

// check finds flags that do not go together.
func (f *rateFiles) check(fs *pflag.FlagSet) error {
	if f.given {
		return nil
	}
	return flags.Alone(fs, "needs --ratelimit", "ratelimit-merge", "ratelimit-algorithm", "ratelimit-ignore-dotfiles")
}

// checkFile checks one configuration. Its policies are those that count its limits and the overrides of descriptors.
func (f *rateFiles) checkFile(name string, hasStore bool) *checked {
	c := &checked{File: name, Mistakes: []yamlread.Mistake{}, Warnings: []yamlread.Mistake{}}
	o := ratelimitconfig.Options{Merge: f.merge, NoStore: !hasStore}
	_ = o.Algorithm.UnmarshalText([]byte(f.algorithm)) // the flag accepts nothing else
	files, err := live.ReadMore(name, f.ignoreDotFiles)
	var limits *ratelimitconfig.Config
	if err == nil {
		limits, err = ratelimitconfig.Parse(files, o)
	}
	var wrong *ratelimitconfig.Errors
	switch {
	case errors.As(err, &wrong):
		c.Mistakes, c.Omitted = append(c.Mistakes, wrong.All...), wrong.Omitted
	case err != nil:
		c.Error = err.Error()
	default:
		c.OK, c.Policies, c.Domains, c.limits = true, len(limits.Policies), limits.Domains(), len(limits.Limits)
		c.Warnings = append(c.Warnings, limits.Warnings...)
	}
	return c
}
