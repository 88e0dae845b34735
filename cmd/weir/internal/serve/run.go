package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// serving is a server that runs.
type serving struct {
	watch

	o       *options
	log     *slog.Logger
	stdout  io.Writer
	stderr  io.Writer
	read    reader
	outside homes
	limits  *live.Limits
	held    *holds.Holds
	secrets secrets
	started time.Time
	check   *checkapi.Handler
	// forPeople reports whether the server says on a terminal what it is.
	forPeople bool
	// canLog reports whether the command can be told to log more.
	canLog  bool
	closing []func() // what fronts leave, until the server ends
	told    []teller
	fronts  front.Group
}

// teller is a front that has something to say about itself.
type teller struct {
	name   string
	status func() any
}

// run serves the limits of a configuration, or those of the command line.
func run(cmd *cobra.Command, o *options) error {
	// Before anything else, as this signal ends a program that does not expect it. So it does without a file on a terminal, which
	// sends it as it closes.
	hangups := make(chan os.Signal, 1)
	interactive := terminal.Of(cmd.ErrOrStderr()).Interactive
	if o.configured() || !interactive {
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	boundGarbage()
	ctx := cmd.Context()
	// On a terminal a person reads along: a few lines for people take the place of what is only informative, unless that is asked
	// for.
	logs := slices.ContainsFunc([]string{flags.LogLevel, "log-format", "log-requests", "explain-every"}, cmd.Flags().Changed)
	forPeople := interactive && !logs
	if forPeople {
		o.log.Level = "warn"
	}
	log := o.log.New(cmd.ErrOrStderr())
	s := &serving{
		o: o, log: log, forPeople: forPeople, canLog: cmd.Flags().Lookup(flags.LogLevel) != nil,
		stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(), started: time.Now(),
		read: reader{flag: o.config.store, rates: &o.rates, log: log}, outside: homes{log: log},
		held:   holds.New(holds.Options{}),
		fronts: front.Group{Log: log, Delay: o.shutdownDelay, Timeout: o.shutdownTimeout},
	}
	s.fronts.OnDrain = s.drain
	o.running = s
	defer s.end()
	var err error
	if s.secrets, err = o.secrets(log); err != nil {
		return err
	}
	if wrong := s.observe(); wrong != nil {
		return wrong
	}
	if err = s.open(ctx); err != nil {
		return s.invalid(err)
	}
	if err = s.listen(ctx); err != nil {
		s.fronts.Close()
		return err
	}
	go s.limits.ReloadOn(ctx, hangups)
	if o.configured() {
		s.limits.Watch(ctx)
	}
	if err = s.measure(); err != nil {
		s.fronts.Close()
		return err
	}
	s.announce()
	if o.serves != nil {
		o.serves(s.fronts.All[0].Listener.Addr())
	}
	err = s.fronts.Serve(ctx)
	var total []any
	for i := range s.fronts.All {
		if of := s.fronts.All[i].Total; of != nil {
			total = append(total, of()...)
		}
	}
	report := s.limits.Status()
	s.end()
	log.Info("stopped", append(total, "reloads", report.Reloads, "reloads_refused", report.Refused,
		"uptime", time.Since(s.started).Round(time.Millisecond).String())...)
	return err
}

// invalid writes what is wrong with the files, if that is what is wrong.
func (s *serving) invalid(err error) error {
	if wrong, ok := errors.AsType[*yamlread.Errors](err); ok && wrong.File == ratelimitconfig.Name {
		named := *wrong
		named.File, err = s.o.rates.path, &named
	}
	return flags.InvalidFile(s.stderr, err)
}

// open opens what the limits are kept in.
func (s *serving) open(ctx context.Context) (err error) {
	o := s.o
	engine := s.watched(o.engine(s.log)) //nolint:contextcheck // what is watched are requests, which have their own
	if !o.configured() {
		s.limits, err = o.fixed(engine, s.log) //nolint:contextcheck // overrides that end ask their store
		return err
	}
	if s.read.state, err = o.config.stateFile(os.Getenv); err != nil {
		return err
	}
	load := live.Options{
		Path: o.config.path, More: o.rates.path, IgnoreDotFiles: o.rates.ignoreDotFiles, Parse: s.read.parse, Engine: engine,
		Logger: s.log, Reloaded: s.reloaded,
	}
	s.outside.open(ctx, &s.read, &load)
	s.limits, err = live.Load(load) //nolint:contextcheck // overrides that end ask their store
	return err
}

// fixedPolicy is the policy of the command line.
const fixedPolicy = "default"

// fixed are the limits of the command line.
func (o *options) fixed(engine policy.EngineOptions, log *slog.Logger) (*live.Limits, error) {
	limiter, err := o.limit.New(fixedPolicy, nil) // its errors name the flags
	if err != nil {
		return nil, err
	}
	_ = limiter.Close() // it is always nil
	if o.keyed {
		return live.Fixed(o.limit.Set(fixedPolicy), engine, log)
	}
	return live.Fixed(&policy.Set{Policies: []policy.Policy{{
		Name: fixedPolicy, Key: policy.NamedKey(), MaxKeys: o.limit.MaxKeys,
		Limits: []policy.Limit{{Limit: weir.TokenBucket(o.limit.EffectiveRate(), o.limit.EffectiveBurst())}},
	}}}, engine, log)
}

// end ends what the limits are kept in, when nothing is answered any more. Nothing is left to do for a second call.
func (s *serving) end() {
	for _, end := range s.closing {
		end()
	}
	s.closing = nil
	s.held.Close() // before the engine, and that before the store, which is given back what was not used
	if s.limits != nil {
		_ = s.limits.Engine().Close() // it is always nil
	}
	s.outside.end()
	s.unobserve()
}

// listen listens, and makes the fronts.
func (s *serving) listen(ctx context.Context) error {
	var offers []*front.Offer
	for _, o := range s.o.fronts.offers {
		if o.Address == "" {
			continue
		}
		l, err := front.Listen(ctx, o.Name, o.Address, o.Usual)
		if err != nil {
			return err
		}
		offers = append(offers, o)
		s.fronts.All = append(s.fronts.All, front.Listening{Name: o.Name, Listener: l})
	}
	if err := s.pages(); err != nil {
		return err
	}
	for i, o := range offers {
		if err := s.offer(o, &s.fronts.All[i]); err != nil {
			return err
		}
	}
	return nil
}

// listener is that of a front, nil if it is not offered.
func (s *serving) listener(name string) net.Listener {
	for i := range s.fronts.All {
		if s.fronts.All[i].Name == name {
			return s.fronts.All[i].Listener
		}
	}
	return nil
}

// offer makes a front.
func (s *serving) offer(o *front.Offer, at *front.Listening) (err error) {
	shared := front.Shared{
		Limits: s.limits, Holds: s.held, Alone: s.read.cluster != nil && s.read.cluster.File != "",
		TLS: s.secrets.certificates.of, Traced: s.metrics.Traced, Log: s.log, Address: at.Listener.Addr(),
		MaxConnections: o.Bound.Most, ConnectionsPerAddress: o.Bound.OfOne, IdleTimeout: o.Idle,
	}
	if s.o.rates.path != "" {
		shared.Descriptors = s.tree
	}
	if at.Made, err = o.New(shared); err != nil {
		return err
	}
	if at.Close != nil {
		s.closing = append(s.closing, at.Close)
	}
	if o.Unguarded != nil && !isLoopback(shared.Address) && s.o.fronts.tls.ClientCA == "" {
		if advice := o.Unguarded(); advice != "" {
			s.log.Warn("every client that reaches --"+o.Name+" may use it: "+advice, o.Name, shared.Address.String())
		}
	}
	for name, status := range at.Status {
		s.told = append(s.told, teller{name, status})
	}
	return nil
}

// tree is the configuration of envoyproxy/ratelimit in force, nil if there is none.
func (s *serving) tree() *ratelimitconfig.Config {
	c, _ := s.limits.Extra().(*ratelimitconfig.Config)
	return c
}

// status is what the status of the server has besides that of its limits.
func (s *serving) status() map[string]any {
	extra := make(map[string]any, len(s.told)+2)
	for _, t := range s.told {
		extra[t.name] = t.status()
	}
	s.outside.tell(extra)
	return extra
}

// isLoopback reports whether an address cannot be reached from another machine.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// announce prints the addresses whose ports the system has chosen, and logs that the server is up, with a command to try it. In a
// text log quotes would be escaped, and the command could not be copied into a shell, so there it has a line of its own.
func (s *serving) announce() {
	o, set := s.o, s.limits.Engine().Set()
	var attributes []any
	printed := !s.forPeople || !terminal.Of(s.stdout).Interactive // otherwise the lines for people have them
	for i, l := range s.fronts.All {
		address := l.Listener.Addr().String()
		if printed && front.IsAnyPort(o.address(l.Name)) {
			if i > 0 {
				fmt.Fprint(s.stdout, l.Name, " ")
			}
			fmt.Fprintln(s.stdout, address)
		}
		if l.Told == nil {
			l.Told = []any{l.Name, address}
		}
		attributes = append(attributes, l.Told...)
	}
	switch {
	case o.configured():
		attributes = append(attributes, "config", cmp.Or(o.config.path, o.rates.path), "policies", len(set.Policies),
			"rules", len(set.Rules))
	case o.keyed:
		attributes = append(attributes, "limit", o.limit.String(), "by", o.limit.By.String())
	default:
		attributes = append(attributes, "policy", fixedPolicy, "limit", o.limit.EffectiveRate().String(),
			"burst", o.limit.EffectiveBurst(), "max_keys", o.limit.MaxKeys)
	}
	if s.read.store != nil {
		attributes = append(attributes, "store", s.read.store.String())
	}
	if s.read.needed {
		attributes = append(attributes, "cluster", s.read.cluster.String())
	}
	if s.forPeople {
		s.welcome(set)
		return
	}
	try := ""
	if first := s.fronts.All[0]; first.Name == frontHTTP {
		try = checkapi.Example(front.Reachable(first.Listener.Addr()), set)
		if o.fronts.tls.Certificate != "" {
			try = strings.Replace(try, "http://", "https://", 1)
		}
	}
	if try != "" && o.log.Format == "json" {
		s.log.Info(o.doing, append(attributes, "try", try)...)
		return
	}
	s.log.Info(o.doing, attributes...)
	if try != "" && s.log.Enabled(context.Background(), slog.LevelInfo) {
		fmt.Fprintln(s.stderr, "try:", try)
	}
}

// welcome says in four lines what the server does, where, where its dashboard is, and how to stop it.
func (s *serving) welcome(set *policy.Set) {
	o, out := s.o, terminal.Of(s.stderr)
	what := "one limit for each key, " + o.limit.String()
	if o.configured() {
		what = fmt.Sprintf("%s: policies %d, rules %d", cmp.Or(o.config.path, o.rates.path), len(set.Policies), len(set.Rules))
	}
	scheme := "http://"
	if o.fronts.tls.Certificate != "" {
		scheme = "https://"
	}
	var where []string
	for i, l := range s.fronts.All {
		address := front.Reachable(l.Listener.Addr())
		switch {
		case i == 0:
			where = append(where, scheme+address)
		case l.Name != frontAdmin:
			where = append(where, l.Name+" "+address)
		}
	}
	dashboard := "none: --admin " + usualAdmin + " has one"
	if l := cmp.Or(s.listener(frontAdmin), s.listener(frontHTTP)); l != nil {
		dashboard = scheme + front.Reachable(l.Addr()) + operator.UIPath
	}
	stop := "Ctrl-C"
	if s.canLog {
		stop += "; --log-level info logs what happens"
	}
	for _, line := range [][2]string{
		{"weir " + o.does, what},
		{"at", strings.Join(where, ", ")},
		{"dashboard", dashboard},
		{"to stop", stop},
	} {
		fmt.Fprintf(s.stderr, "%s  %s\n", out.Bold(fmt.Sprintf("%*s", len("weir ")+len(o.does), line[0])), line[1])
	}
}
