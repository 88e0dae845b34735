package replay

import (
	"fmt"
	"io"
	"time"

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
	return configuration{name, file.Set, clock}, nil
}

// ofLimit is a configuration of one policy, that of the flags.
func ofLimit(l *flags.Limit) (configuration, error) {
	if _, err := l.New("limit", nil); err != nil { // which names the flag
		return configuration{}, err
	}
	set, err := l.Set("limit")
	name := fmt.Sprintf("%s, burst %d, by %s", l.EffectiveRate(), l.EffectiveBurst(), l.By)
	return configuration{name, set, &manualclock.Clock{}}, err
}
