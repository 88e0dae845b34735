package serve

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// configFlags are those that hold with --config only.
type configFlags struct {
	path          string
	state         string
	storeURL      flags.StoreURL
	store         *config.Store // of storeURL
	trusted       []netip.Prefix
	refusalStatus int
	authHeaders   string
	explainEvery  int
}

const defaultRefusalStatus = 429

func (f *configFlags) register(fs *pflag.FlagSet) {
	f.trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	f.refusalStatus = defaultRefusalStatus
	fs.Var(flags.File(&f.path), "config", "policies and rules in YAML, read again when it changes (default: none)")
	fs.Var(&f.storeURL, "store",
		"Redis or Valkey that shares the policies of the files that are not local, in place of that of --config: "+
			"redis://host:6379, rediss:// over TLS (default: that of --config)")
	fs.Var(flags.Text(&f.state, 1, 4096), "state",
		"directory for what survives a restart: calendar windows of a day and longer, unless --config has a cluster; or none "+
			"(default: $STATE_DIRECTORY, or one for this --config below $XDG_STATE_HOME/weir)")
	fs.Var(flags.Networks(&f.trusted), "trust-proxy",
		"addresses or networks of the proxies that ask at /v1/auth and are believed what they say of a request")
	fs.Var(flags.Int(&f.refusalStatus, 400, 499), "auth-refusal-status",
		"status of refusals at /v1/auth, from 400 to 499; at /v1/auth/nginx it is 403 unless this is 401")
	f.authHeaders = headersIETF
	fs.Var(flags.OneOf(&f.authHeaders, headersNone, headersIETF), "auth-headers",
		"header fields of answers at /v1/auth: RateLimit and RateLimit-Policy,\nwhich name policies to clients where the proxy "+
			"passes them on, as bodies of\nrefusals do, or none, without names in bodies")
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
		for _, name := range []string{"limit", "burst", "max-keys"} {
			if fs.Changed(name) {
				return flags.Errorf("--%s cannot stand with --config or --ratelimit-config, which have the limits", name)
			}
		}
		return nil
	}
	for _, name := range []string{"store", "trust-proxy", "auth-refusal-status", "auth-headers", "explain-every"} {
		if fs.Changed(name) {
			return flags.Errorf("--%s needs --config or --ratelimit-config", name)
		}
	}
	return nil
}

// configured reports whether the limits are those of a file.
func (o *options) configured() bool { return o.config.path != "" || o.rates.path != "" }

// listed are the mistakes of a configuration.
type listed struct{ *yamlread.Errors }

// Mistakes are a line each.
func (m listed) Mistakes() []string {
	lines := make([]string, 0, len(m.Errors.Mistakes)+1)
	for _, mistake := range m.Errors.Mistakes {
		lines = append(lines, mistake.String())
	}
	if m.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d more", m.File, m.Omitted))
	}
	return lines
}

// engine are the options of the engine of a configuration.
func (o *options) engine(log *slog.Logger) policy.EngineOptions {
	e := policy.EngineOptions{Logger: log}
	if o.config.explainEvery > 0 {
		e.ExplainEvery, e.OnExplain = o.config.explainEvery, logExplanation(log, o.log.Format)
	}
	return e
}

// status is that of refusals, 0 if it was not given.
func (f *configFlags) status(fs *pflag.FlagSet) int {
	if !fs.Changed("auth-refusal-status") {
		return 0
	}
	return f.refusalStatus
}

// authFields are the header fields of --auth-headers.
func (f *configFlags) authFields() ratelimitfields.Fields {
	if f.authHeaders == headersNone {
		return ratelimitfields.NoFields
	}
	return ratelimitfields.RateLimit11
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
