package flags

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config"
)

const (
	defaultBurst   = 20
	defaultMaxKeys = 1_000_000
	highestMaxKeys = min(1<<31, math.MaxInt) // which is less where an int has 32 bits
)

// Limit is a token bucket for each key, as the command line gives it.
type Limit struct {
	// Rate is how fast the permits of a key come back: --limit, default 10/s.
	Rate weir.Rate
	// Burst is how many permits a key holds: --burst, from 1 to 10^15. 0 stands for the default, see EffectiveBurst.
	Burst int64
	// By is what makes up a key: --by, default client.
	By Key
	// MaxKeys is how many keys are tracked at a time: --max-keys, from 1 to 2^31, or one less where an int has 32 bits. Default:
	// 1,000,000.
	MaxKeys int
}

// Register sets l to the defaults and adds --limit, --burst, --by and --max-keys to fs, which write to l.
func (l *Limit) Register(fs *pflag.FlagSet) {
	l.RegisterRate(fs)
	fs.Var(keyFlag(&l.By), "by", "what has a limit of its own: "+keyNames+", or several joined by commas")
}

// RegisterRate is Register without --by, for a command whose requests name their keys themselves.
func (l *Limit) RegisterRate(fs *pflag.FlagSet) {
	*l = Limit{MaxKeys: defaultMaxKeys, By: Client()}
	fs.Var(rateFlag(&l.Rate), "limit", "permits per period that come back: 10/s, 8/min, 1000/24h, 0.5/s")
	fs.Var(Some(&l.Burst, 1, algo.MaxPermits), "burst", "permits available at once after a pause, from 1 to 10^15\n"+
		"(default: the permits of --limit; 20 if there is no --limit)")
	fs.Var(Int(&l.MaxKeys, 1, highestMaxKeys), "max-keys",
		"keys tracked at a time without --config, from 1 to 2^31; when none of them can be\nforgotten, new ones are refused")
}

// EffectiveRate is the rate that New uses: Rate, or 10/s if that is zero.
func (l *Limit) EffectiveRate() weir.Rate {
	if l.Rate == (weir.Rate{}) {
		return weir.PerSecond(10)
	}
	return l.Rate
}

// EffectiveBurst is the burst that New uses: Burst; if that is zero, the permits of Rate; if that is zero too, 20.
func (l *Limit) EffectiveBurst() int64 {
	switch {
	case l.Burst != 0:
		return l.Burst
	case l.Rate == (weir.Rate{}):
		return defaultBurst
	default:
		return l.Rate.Permits
	}
}

// String describes the limit: "10/s burst 20".
func (l *Limit) String() string {
	return fmt.Sprintf("%v burst %d", l.EffectiveRate(), l.EffectiveBurst())
}

// New returns a limiter of that name which tells the time by clock, nil for the monotonic clock of the process. What
// cannot be combined is a [*flags.Error] that names the flag.
func (l *Limit) New(name string, clock weir.Clock) (*weir.Keyed[string], error) {
	limiter, err := weir.NewKeyed[string](weir.TokenBucket(l.EffectiveRate(), l.EffectiveBurst()), weir.KeyedOptions{
		Name: name, MaxKeys: l.MaxKeys, Clock: clock,
	})
	var option *weir.OptionError
	switch {
	case err == nil:
		return limiter, nil
	case errors.As(err, &option):
		flag := flagOfOption[option.Option[strings.LastIndexByte(option.Option, '.')+1:]]
		if flag == "" {
			flag = "limit"
		}
		return nil, BadValue(flag, option.Value, "must be "+option.Accepted)
	default:
		return nil, BadValue("limit", l.EffectiveRate().String(), strings.TrimPrefix(err.Error(), "weir: "))
	}
}

var flagOfOption = map[string]string{"Rate": "limit", "Burst": "burst", "MaxKeys": "max-keys", "MaxDebt": "burst"}

// rateFlag is a flag value that stores into p a rate of permits.
func rateFlag(p *weir.Rate) *Value {
	text := func(r weir.Rate) string {
		if r == (weir.Rate{}) {
			return "10/s"
		}
		return r.String()
	}
	return Of("permits/period", p, text, func(s string) (weir.Rate, error) {
		if err := RateMistake(s); err != nil {
			return weir.Rate{}, err
		}
		return weir.ParseRate(s)
	})
}

// RateMistake is what is wrong with a rate, nil if nothing is. The text leaves out the rate, as that of a flag stands before it.
func RateMistake(s string) error {
	if _, err := weir.ParseRate(s); err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weir: "), fmt.Sprintf("rate %.40q: ", s))
		if meant := config.RateMeant(s); meant != "" {
			text += "; did you mean " + Quote(meant) + "?"
		}
		return errors.New(text)
	}
	return nil
}
