package serve

import (
	"encoding/json"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// configFlags are those that hold with --config only.
type configFlags struct {
	path         string
	state        string
	storeURL     flags.StoreURL
	store        *config.Store // of storeURL
	explainEvery int
}

func (f *configFlags) register(fs *pflag.FlagSet) {
	fs.Var(flags.File(&f.path), "config", "policies and rules in YAML, read again when it changes (default: none)")
	fs.Var(f.storeURL.Flag(), "store",
		"Redis or Valkey that shares the policies of the files that are not local, in place of that of --config: "+
			"redis://host:6379, rediss:// over TLS (default: that of --config)")
	fs.Var(flags.Text(&f.state, 1, 4096), "state",
		"directory for what survives a restart: calendar windows of a day and longer, unless --config has a cluster; or none "+
			"(default: $STATE_DIRECTORY, or one for this --config below $XDG_STATE_HOME/weir)")
	fs.Var(flags.Int(&f.explainEvery, 0, 1_000_000_000), "explain-every",
		"log why one in so many requests was answered as it was, up to 1000000000; 0 for none")
}

// check finds flags that do not go together. rates reports whether there is a configuration of envoyproxy/ratelimit.
func (f *configFlags) check(fs *pflag.FlagSet, rates bool) error {
	var err error
	if f.store, err = f.storeURL.Store(); err != nil {
		return err
	}
	if f.path == "" && fs.Changed("state") {
		return flags.Errorf("--state needs --config")
	}
	if f.path != "" || rates {
		return flags.Alone(fs, "cannot be combined with --config or --ratelimit-config, which have the limits",
			"limit", "burst", "max-keys", "by")
	}
	return flags.Alone(fs, "needs --config or --ratelimit-config",
		"store", "trust-proxy", "auth-refusal-status", "auth-headers", "explain-every")
}

// configured reports whether the limits are those of a file.
func (o *options) configured() bool { return o.config.path != "" || o.rates.path != "" }

// engine are the options of the engine of a configuration.
func (o *options) engine(log *slog.Logger) policy.EngineOptions {
	e := policy.EngineOptions{Logger: log}
	if o.config.explainEvery > 0 {
		e.ExplainEvery, e.OnExplain = o.config.explainEvery, logExplanation(log, o.log.Format)
	}
	return e
}

// logExplanation logs an explanation.
func logExplanation(log *slog.Logger, format string) func(policy.Explanation) {
	return func(e policy.Explanation) {
		text, err := json.Marshal(operator.ExplanationOf(&e))
		switch {
		case err != nil:
			log.Error("explanation", "error", err.Error())
		case format == "json":
			log.Info("explanation", "explanation", json.RawMessage(text))
		default:
			log.Info("explanation", "explanation", string(text))
		}
	}
}
