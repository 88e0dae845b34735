package offline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

func checkCommand() *cobra.Command {
	asJSON := false
	var (
		url   flags.StoreURL
		rates rateFiles
	)
	cmd := &cobra.Command{
		Use:   "check [flags] FILE...",
		Short: "Find all mistakes of configurations",
		Long: `check reads configurations as the server does, and tells every mistake in one
run: its file, line and column, what is wrong, and in the next line what to do
about it. Variables such as ${NAME} are taken from the environment; their
values are never shown.

A warning is about what is likely not meant, such as a rule behind one that is
final. It does not keep a configuration from being used.

Of each limit that servers share it tells by how much they can exceed it
together and how much of it can stay unused, and what holds without the store.
With --json these are at_once, the most permits taken at once; overshoot, how
many permits above the limit each process but one can allow; and unused, how
many each process may keep. Of each durable limit it tells how many permits a
crash of its owner burns: burned.

Of each policy with a lockout it tells from which rate on a client is locked
out, if its requests are evenly spaced. With --json that is requests_per_second,
and within is how many seconds a refusal counts.

With --ratelimit each FILE is a configuration of envoyproxy/ratelimit, or the
directory of one, as of --ratelimit-config of weir serve.

The exit status is 0 if all configurations can be used, and 2 otherwise.`,
		Example: `  weir config check weir.yaml
  weir config check /etc/weir/*.yaml
  weir config check --ratelimit ratelimit/config/
  weir config check weir.yaml --json | jq -r '.files[].mistakes[].message'
  weir config check weir.yaml --json | jq '.files[].shared[] | {policy, overshoot}'`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return flags.Errorf("check needs a FILE")
			}
			return nil
		},
		ValidArgsFunction: yamlFiles,
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := rates.check(cmd.Flags()); err != nil {
				return err
			}
			store, err := url.Store()
			if err != nil {
				return err
			}
			checkOne := checkFile
			if rates.given {
				checkOne = rates.checkFile
			}
			return check(cmd, files, asJSON, func(name string) *checked { return checkOne(name, store != nil) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(url.Flag(), "store",
		"the store that weir serve has by --store: shared policies need none in the file (default: none)")
	rates.register(fs)
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// checked is what is said of a file, in the form of --json.
type checked struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	// Error says why the file could not be read at all, "" if it could.
	Error    string `json:"error,omitempty"`
	Policies int    `json:"policies"`
	Rules    int    `json:"rules"`
	// Domains are those of a configuration of envoyproxy/ratelimit.
	Domains  []string           `json:"domains,omitempty"`
	Mistakes []yamlread.Mistake `json:"mistakes"`
	// Omitted counts further mistakes.
	Omitted  int                `json:"omitted,omitempty"`
	Warnings []yamlread.Mistake `json:"warnings"`
	// Shared are the bounds of the limits that processes share, or that a cluster owns.
	Shared []config.Bound `json:"shared,omitempty"`
	// Lockouts are the rates at which keys are locked out.
	Lockouts []config.LockoutRate `json:"lockouts,omitempty"`

	limits int // of the domains
}

// stateOfServer stands for the file of weir serve, which keeps calendar windows where the configuration says nothing else.
const stateOfServer = "limits in the directory of weir serve --state"

// checkWidth is how many columns what is said of shared limits has.
const checkWidth = 80

// newChecked is what is said of a file that was read, or could not be for this error.
func newChecked(name string, err error) *checked {
	c := &checked{File: name, OK: err == nil, Mistakes: []yamlread.Mistake{}, Warnings: []yamlread.Mistake{}}
	if wrong, ok := errors.AsType[*yamlread.Errors](err); ok {
		c.Mistakes, c.Omitted = append(c.Mistakes, wrong.Mistakes...), wrong.Omitted
	} else if err != nil {
		c.Error = err.Error()
	}
	return c
}

func checkFile(name string, hasStore bool) *checked {
	file, err := config.Load(name, config.Options{HasStore: hasStore, StateFile: stateOfServer})
	c := newChecked(name, err)
	if c.OK {
		c.Policies, c.Rules = len(file.Set.Policies), len(file.Set.Rules)
		c.Warnings = append(c.Warnings, file.Warnings...)
		c.Shared, c.Lockouts = file.Bounds(), file.LockoutRates()
	}
	return c
}

// print writes the mistakes and warnings, and of a file that can be used a line that says so.
func (c *checked) print(w io.Writer, out terminal.Output) {
	flags.WriteMistakes(w, out, c.Mistakes)
	flags.WarnMistakes(w, out, c.Warnings)
	switch {
	case c.OK && len(c.Domains) > 0:
		fmt.Fprintf(w, "%s: ok: %s, %s\n", c.File,
			terminal.Plural(len(c.Domains), "domain", "domains"), terminal.Plural(c.limits, "limit", "limits"))
	case c.OK:
		fmt.Fprintf(w, "%s: ok: %s, %s\n", c.File,
			terminal.Plural(c.Policies, "policy", "policies"), terminal.Plural(c.Rules, "rule", "rules"))
		for _, b := range c.Shared {
			item(w, kind(b)+b.String())
		}
		for _, l := range c.Lockouts {
			item(w, "lockout "+l.String())
		}
	case c.Omitted > 0:
		fmt.Fprintf(w, "%s: %d more\n", c.File, c.Omitted)
	}
}

// item writes one line, or several, about something in a file.
func item(w io.Writer, text string) {
	fmt.Fprintln(w, "  "+strings.TrimLeft(terminal.Wrap(text, 4, checkWidth), " "))
}

// kind begins what is said of a bound, which says itself that it is that of a durable limit.
func kind(b config.Bound) string {
	if b.Durability != policy.DurabilityMemory {
		return "limit "
	}
	return "shared "
}

func check(cmd *cobra.Command, files []string, asJSON bool, checkOne func(name string) *checked) error {
	w := cmd.OutOrStdout()
	out := terminal.Of(w)
	var text bytes.Buffer
	result := struct {
		OK    bool       `json:"ok"`
		Files []*checked `json:"files"`
	}{OK: true}
	unusable, found := 0, 0
	last := ""
	for _, name := range files {
		c := checkOne(name)
		result.Files = append(result.Files, c)
		if !asJSON {
			c.print(&text, out)
		}
		if c.OK {
			continue
		}
		unusable++
		found += len(c.Mistakes) + c.Omitted
		last = name + " cannot be used: " + flags.CountMistakes(found)
		if c.Error != "" {
			last = c.Error
			if !asJSON && len(files) > 1 {
				fmt.Fprintf(&text, "%s: %s\n", name, c.Error)
			}
		}
	}
	result.OK = unusable == 0
	var err error
	if asJSON {
		err = terminal.PrintJSON(w, result)
	} else {
		_, err = text.WriteTo(w)
	}
	switch {
	case err != nil:
		return fmt.Errorf("weir: writing the result: %w", err)
	case unusable == 0:
		return nil
	case len(files) == 1:
		return flags.Inputf("%s", last)
	default:
		return flags.Inputf("%d of %d configurations cannot be used: %s", unusable, len(files), flags.CountMistakes(found))
	}
}

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
	o := ratelimitconfig.Options{Merge: f.merge, NoStore: !hasStore}
	_ = o.Algorithm.UnmarshalText([]byte(f.algorithm)) // the flag accepts nothing else
	files, err := live.ReadMore(name, f.ignoreDotFiles)
	var limits *ratelimitconfig.Config
	if err == nil {
		limits, err = ratelimitconfig.Parse(files, o)
	}
	c := newChecked(name, err)
	if c.OK {
		c.Policies, c.Domains, c.limits = len(limits.Policies), limits.Domains(), len(limits.Limits)
		c.Warnings = append(c.Warnings, limits.Warnings...)
	}
	return c
}
