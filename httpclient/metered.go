package httpclient

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/metered"
)

// MeteredAPIOptions are what a client of a metered API may send. The zero value is the preset: bursts of 5, 8 a minute.
type MeteredAPIOptions struct {
	// Name is that of the limit in errors. Default: "metered-api".
	Name string
	// BurstVariable and PerMinuteVariable are the names of environment variables that replace Burst and PerMinute. Both count
	// requests. Defaults: with LookupEnv [durable.BurstVariable] and [durable.PerMinuteVariable], otherwise none is read.
	BurstVariable     string
	PerMinuteVariable string
	// Burst is how many requests may be sent at once, from 1 to 1,000,000, unless a variable replaces it. Default: 5.
	Burst int64
	// PerMinute is how many may be sent in a minute, from 0.001 to 60,000,000, unless a variable replaces it. Default: 8.
	PerMinute float64
	// LookupEnv reads the variables: os.LookupEnv for those of the process. Default: nil, os.LookupEnv for the variables that
	// are named here, and no other is read.
	LookupEnv func(name string) (value string, ok bool)
	// Logger is warned of variables that cannot be used. Default: slog.Default.
	Logger *slog.Logger
}

// MeteredAPI returns options of a [Transport] for an API that is paid for, or that refuses too many requests. Requests to all
// hosts together are sent at no more than PerMinute after a Burst. Others wait for up to 30 s in a queue of up to 10,000. The
// limits that the server tells are kept too. The defaults stay below a limit of 10 requests a minute.
//
// Burst and PerMinute come from the environment if LookupEnv, BurstVariable or PerMinuteVariable is set. A variable that is not
// set, or is empty, leaves the default. So does one that is not a number or out of range, with a warning in the log. PerMinute
// may have up to three decimals. An error names an option that cannot be used.
//
// The options can be changed before they are given to [New], such as Base.
func MeteredAPI(o MeteredAPIOptions) (Options, error) {
	setDefault(&o.Name, "metered-api")
	setDefault(&o.Burst, durable.DefaultMeteredBurst)
	setDefault(&o.PerMinute, durable.DefaultMeteredPerMinute)
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	} else {
		setDefault(&o.BurstVariable, durable.BurstVariable)
		setDefault(&o.PerMinuteVariable, durable.PerMinuteVariable)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Burst < 1 || o.Burst > metered.MostBurst:
		return Options{}, optionError("MeteredAPIOptions.Burst", strconv.FormatInt(o.Burst, 10),
			"from 1 to 1000000, or 0 for 5")
	case !metered.IsPerMinute(o.PerMinute):
		return Options{}, optionError("MeteredAPIOptions.PerMinute", strconv.FormatFloat(o.PerMinute, 'g', -1, 64),
			"from 0.001 to 60000000, or 0 for 8")
	}
	e := metered.Environment{
		BurstVariable: o.BurstVariable, PerMinuteVariable: o.PerMinuteVariable, Unusable: o.warn,
		Lookup: func(name string) string {
			if name == "" {
				return ""
			}
			value, _ := o.LookupEnv(name)
			return value
		},
	}
	burst, perMinute := e.Read(o.Burst, o.PerMinute)
	limiter, err := weir.New(weir.TokenBucket(weir.Per(metered.Rate(perMinute)), burst), weir.Options{
		Name: o.Name, QueueLimit: 10_000,
	})
	if err != nil {
		return Options{}, err
	}
	return Options{Limiter: limiter, MaxWait: 30 * time.Second}, nil
}

// warn tells of a variable that is not used.
func (o *MeteredAPIOptions) warn(name, value, accepted string, instead any) {
	const longest = 80
	if len(value) > longest {
		value = value[:longest]
	}
	o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "httpclient: an environment variable cannot be used, the default is",
		slog.String("name", name), slog.String("value", value), slog.String("accepted", accepted), slog.Any("default", instead))
}
