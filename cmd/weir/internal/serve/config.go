package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/explained"
	"github.com/weirhq/weir/cmd/weir/internal/flagvalue"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/cmd/weir/internal/listen"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/mistakes"
	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// configFlags are those that hold with --config only.
type configFlags struct {
	path          string
	storeURL      flagvalue.StoreURL
	store         *config.Store // of storeURL
	trusted       []netip.Prefix
	refusalStatus int
	tokenFile     string
	explainEvery  int
}

const defaultRefusalStatus = 429

func (f *configFlags) register(fs *pflag.FlagSet) {
	f.trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	f.refusalStatus = defaultRefusalStatus
	fs.Var(flagvalue.File(&f.path), "config", "policies and rules in YAML, read again when it changes (default: none)")
	fs.Var(&f.storeURL, "store",
		"Redis or Valkey that shares the policies of the file that are not local, in place of its own: "+
			"redis://host:6379, rediss:// over TLS (default: that of the file)")
	fs.Var(flagvalue.Networks(&f.trusted), "trust-proxy",
		"addresses or networks of the proxies that ask at /v1/auth and are believed what they say of a request")
	fs.Var(flagvalue.Int(&f.refusalStatus, 400, 499), "auth-refusal-status",
		"status of refusals at /v1/auth, from 400 to 499; at /v1/auth/nginx it is 403 unless this is 401")
	fs.Var(flagvalue.File(&f.tokenFile), "admin-token-file",
		"file with the token of 16 to 4096 characters that /v1/status, /v1/explain, /v1/reload and /v1/quota need "+
			"(default: none: they are answered if weir listens on a loopback address)")
	fs.Var(flagvalue.Int(&f.explainEvery, 0, 1_000_000_000), "explain-every",
		"log why one in so many requests was answered as it was, up to 1000000000; 0 for none")
}

// check finds flags that do not go together.
func (f *configFlags) check(fs *pflag.FlagSet) error {
	var err error
	if f.store, err = f.storeURL.Store(); err != nil {
		return err
	}
	if f.path != "" {
		for _, name := range []string{"limit", "burst", "max-keys"} {
			if fs.Changed(name) {
				return misuse.Errorf("--%s cannot stand with --config, which has the limits", name)
			}
		}
		return nil
	}
	for _, name := range []string{"store", "trust-proxy", "auth-refusal-status", "admin-token-file", "explain-every"} {
		if fs.Changed(name) {
			return misuse.Errorf("--%s needs --config", name)
		}
	}
	return nil
}

// listed are the mistakes of a configuration.
type listed struct{ *config.Errors }

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

// runConfigured serves the limits of a configuration.
func runConfigured(cmd *cobra.Command, o *options) error {
	ctx, log := cmd.Context(), o.log.New(cmd.ErrOrStderr())
	// Before anything else, as this signal ends a program that does not expect it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	admin, err := o.config.admin()
	if err != nil {
		return err
	}
	read, outside := reader{flag: o.config.store}, remote{log: log}
	defer outside.end()
	load := live.Options{Path: o.config.path, Parse: read.parse, Engine: o.engine(log), Logger: log}
	outside.open(ctx, &read, &load)
	limits, err := live.Load(load)
	if wrong, ok := errors.AsType[listed](err); ok {
		return mistakes.Invalid(cmd.ErrOrStderr(), wrong.Errors)
	}
	if err != nil {
		return mistakes.Invalid(cmd.ErrOrStderr(), err)
	}
	defer limits.Engine().Close() //nolint:errcheck // is always nil; before the store, which is given back what was not used
	auth, err := forwardauth.New(forwardauth.Options{
		Decider: limits.Engine(), Trusted: o.config.trusted, Status: o.config.status(cmd.Flags()), Logger: log,
	})
	if err != nil {
		return err
	}
	listener, err := listen.On(ctx, "http", o.http, defaultHTTP)
	if err != nil {
		return err
	}
	admin.Local = isLoopback(listener.Addr())
	front := checkapi.NewConfigured(limits, admin, func() map[string]any {
		extra := map[string]any{"forward_auth": auth.Counts()}
		outside.tell(extra)
		return extra
	})
	if outside.cluster != nil {
		front.SetQuotas(outside.cluster)
	}
	go limits.ReloadOn(ctx, hangups)
	if _, watchErr := limits.Watch(ctx); watchErr != nil {
		log.Error("the configuration is reloaded by SIGHUP and POST /v1/reload only", "error", watchErr.Error())
	}
	if listen.IsAnyPort(o.http) {
		fmt.Fprintln(cmd.OutOrStdout(), listener.Addr())
	}
	s := newServer(byPath(front, auth), log, o.shutdownDelay, o.shutdownTimeout)
	start, set := time.Now(), limits.Engine().Set()
	announceConfigured(cmd.ErrOrStderr(), log, o, listener.Addr(), set, &read)
	s.onEnd = front.EndWaiting
	err = s.serve(ctx, listener, front.Drain)
	report := limits.Status()
	_ = limits.Engine().Close() // it is always nil
	outside.end()
	log.Info("stopped", "requests", report.Requests, "refused", report.Report.Refused, "rejected", front.Rejected(),
		"reloads", report.Reloads, "reloads_refused", report.Refused,
		"uptime", time.Since(start).Round(time.Millisecond).String())
	return err
}

// admin is who may ask for what is not for clients, without what the listener says of it.
func (f *configFlags) admin() (a checkapi.Admin, err error) {
	if f.tokenFile != "" {
		a.Token, err = checkapi.ReadToken(f.tokenFile)
	}
	return a, err
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

// byPath gives each request to the front that it is for.
func byPath(front, auth http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forwardauth.Serves(r.URL.Path) {
			auth.ServeHTTP(w, r)
		} else {
			front.ServeHTTP(w, r)
		}
	})
}

// isLoopback tells whether nobody reaches an address from another machine.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// logExplanation logs an explanation.
func logExplanation(log *slog.Logger, format string) func(policy.Explanation) {
	return func(e policy.Explanation) {
		text, err := json.Marshal(explained.Of(&e))
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
