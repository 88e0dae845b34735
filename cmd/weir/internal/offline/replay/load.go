package replay

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// configuration is one of those that a log is run through. Its expressions tell the time by its clock.
type configuration struct {
	name  string // of the file
	set   *policy.Set
	clock *manualclock.Clock
	limit *flags.Limit // nil unless it is one limit, with keys that requests name
}

// limitNames are the flags of a limit.
var limitNames = []string{"limit", "burst", "by", "max-keys"}

// configurations are those of the flags. If there is no --config, the first is the limit of the flags. It must be given if it is
// compared with another: the limit without any flag is hardly the one in force.
func (o *options) configurations(cmd *cobra.Command) ([]configuration, error) {
	if o.config != "" {
		why := "cannot be combined with --config, which has its own limits"
		if err := flags.Alone(cmd.Flags(), why, limitNames...); err != nil {
			return nil, err
		}
	}
	var all []configuration
	if o.config == "" {
		if err := o.limit.By.CheckRecords(); err != nil {
			return nil, err
		}
		if o.against != "" && !slices.ContainsFunc(limitNames, cmd.Flags().Changed) {
			return nil, flags.Errorf("--against needs something to compare with: give --config, or a limit by --limit")
		}
		one, err := ofLimit(&o.limit, o.against == "")
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	for _, name := range []string{o.config, o.against} {
		if name == "" {
			continue
		}
		one, err := load(name, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// load reads a configuration. Mistakes and warnings are written to w.
func load(name string, w io.Writer) (configuration, error) {
	clock := &manualclock.Clock{}
	file, err := config.Load(name, config.Options{
		HasStore: true, Now: func() time.Time { return time.Unix(0, clock.Now()).UTC() },
	})
	if err != nil {
		return configuration{}, flags.InvalidFile(w, err)
	}
	flags.WarnMistakes(w, terminal.Of(w), file.Warnings)
	return configuration{name: name, set: file.Set, clock: clock}, nil
}

// limitName is the policy of a limit of the flags.
const limitName = "limit"

// ofLimit is a configuration of one policy, that of the flags. If it is alone, requests name their keys, so that no more is kept
// of them.
func ofLimit(l *flags.Limit, alone bool) (configuration, error) {
	if _, err := l.New(limitName, nil); err != nil { // which names the flag
		return configuration{}, err
	}
	set := l.Set(limitName)
	c := configuration{
		name: fmt.Sprintf("%s, burst %d, by %s", l.EffectiveRate(), l.EffectiveBurst(), l.By),
		set:  set, clock: &manualclock.Clock{},
	}
	if alone {
		c.limit, set.Policies[0].Key = l, policy.NamedKey()
	}
	return c, nil
}
