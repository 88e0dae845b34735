package serve

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/internal/regularfile"
	"github.com/weirhq/weir/policy"
)

const (
	usualAuditSize = 100
	mostAuditSize  = 100_000
	usualAuditKept = 10
	mostAuditKept  = 10_000
)

// adminFlags say who may look at the server and change it, and what is written down.
type adminFlags struct {
	tokenFile     string
	clientCA      string
	metricsPublic bool
	rate          limitRate

	auditPath            string
	auditSize, auditKept int

	refusalLog     refusalRate
	refusalKeys    string
	refusalSecrets string
}

func (f *adminFlags) register(fs *pflag.FlagSet) {
	fs.Var(flags.File(&f.tokenFile), "admin-token-file",
		"file with the token of 16 to 4096 characters that the admin pages need, or\nwith lines of a name and a token, read "+
			"again when it changes (default: none: the\npages are answered if weir listens on a loopback address)")
	fs.Var(flags.File(&f.clientCA), "admin-client-ca",
		"authorities in PEM whose client certificates let in at the admin pages\n(default: none)")
	f.rate = limitRate(weir.PerSecond(20))
	fs.Var(&f.rate, "admin-rate", "how often an address may ask for admin pages, with a burst of five times that")
	fs.BoolVar(&f.metricsPublic, "metrics-public", false, "answer /metrics to every client")
	fs.Var(flags.File(&f.auditPath), "audit-log",
		"file to which each change by the admin API is appended as a line of JSON\n"+
			"(default: none: the log has it, and the last 1000 are kept)")
	f.auditSize, f.auditKept = usualAuditSize, usualAuditKept
	fs.Var(flags.Int(&f.auditSize, 1, mostAuditSize), "audit-log-size",
		"megabytes at which --audit-log is put aside and begun anew, from 1 to 100000")
	fs.Var(flags.Int(&f.auditKept, 0, mostAuditKept), "audit-log-files",
		"files put aside that are kept, up to 10000; 0 for all")
	f.refusalLog = refusalRate{rate: weir.PerSecond(1)}
	fs.Var(&f.refusalLog, "refusal-log", "how many refusals of each policy are logged in the long run, or off")
	f.refusalKeys = "hashed"
	fs.Var(flags.OneOf(&f.refusalKeys, "hashed", "plain", "none"), "refusal-log-keys", "how the log has keys and clients")
	fs.Var(flags.File(&f.refusalSecrets), "refusal-log-secret-file",
		"file with 16 to 1024 bytes that make the hashes of keys in the log\n(default: none: some by chance, others each time)")
}

// check finds flags that do not go together. withTLS reports whether fronts speak TLS, withPages whether there
// are admin pages.
func (f *adminFlags) check(fs *pflag.FlagSet, withTLS, withPages bool) error {
	if !withPages {
		for _, name := range []string{"admin-token-file", "admin-client-ca", "admin-rate", "metrics-public"} {
			if fs.Changed(name) {
				return flags.Errorf("--%s needs --%s or --%s, where the admin pages are", name, frontAdmin, frontHTTP)
			}
		}
	}
	if f.clientCA != "" && !withTLS {
		return flags.Errorf("--admin-client-ca needs --tls-cert and --tls-key")
	}
	if f.auditPath == "" {
		for _, name := range []string{"audit-log-size", "audit-log-files"} {
			if fs.Changed(name) {
				return flags.Errorf("--%s needs --audit-log", name)
			}
		}
	}
	if f.refusalLog.off {
		for _, name := range []string{"refusal-log-keys", "refusal-log-secret-file"} {
			if fs.Changed(name) {
				return flags.Errorf("--%s cannot stand with --refusal-log off", name)
			}
		}
	}
	if f.refusalSecrets != "" && f.refusalKeys != "hashed" {
		return flags.Errorf("--refusal-log-secret-file needs --refusal-log-keys hashed")
	}
	return nil
}

// tokens are those that let in, nil if none do.
func (f *adminFlags) tokens(log *slog.Logger) (*adminguard.TokenFile, error) {
	if f.tokenFile == "" {
		return nil, nil //nolint:nilnil // no file has no tokens
	}
	tokens, err := adminguard.OpenTokens(f.tokenFile, log)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "weir: token: ")
		if errors.Is(err, os.ErrNotExist) {
			text += "; openssl rand -hex 24 makes a token"
		}
		return nil, flags.Inputf("weir: --admin-token-file: %s", text)
	}
	return tokens, nil
}

// audit opens the audit log.
func (f *adminFlags) audit(log *slog.Logger) (*adminguard.AuditLog, error) {
	l, err := adminguard.OpenAudit(adminguard.AuditOptions{
		Path: f.auditPath, Megabytes: f.auditSize, Files: f.auditKept, Logger: log,
	})
	if err != nil {
		return nil, flags.Inputf("weir: --audit-log: %s", strings.TrimPrefix(err.Error(), "weir: audit log: "))
	}
	return l, nil
}

// The length of what makes hashes.
const (
	shortestSecret = 16
	longestSecret  = 1024
)

// refusals returns what logs them, and makes the hashes of keys also for others if nothing is logged.
func (f *adminFlags) refusals(log *slog.Logger) (*policy.RefusalLog, error) {
	o := policy.RefusalLogOptions{Logger: log, Rate: f.refusalLog.rate}
	switch f.refusalKeys {
	case "plain":
		o.Keys = policy.KeysPlain
	case "none":
		o.Keys = policy.KeysNone
	}
	if f.refusalSecrets != "" {
		secret, err := regularfile.Read(f.refusalSecrets, longestSecret+2)
		if err != nil {
			return nil, flags.Inputf("weir: --refusal-log-secret-file: %s", err)
		}
		secret = bytes.TrimRight(secret, "\r\n")
		if len(secret) < shortestSecret || len(secret) > longestSecret {
			return nil, flags.Inputf("weir: --refusal-log-secret-file: %s has %d bytes: must have from %d to %d",
				f.refusalSecrets, len(secret), shortestSecret, longestSecret)
		}
		o.Secret = secret
	}
	l, err := policy.NewRefusalLog(o)
	if err != nil {
		return nil, fmt.Errorf("weir: --refusal-log: %w", err)
	}
	return l, nil
}

// limitRate is the value of --admin-rate.
type limitRate weir.Rate

// String is the current value.
func (r *limitRate) String() string {
	if *r == (limitRate{}) {
		return ""
	}
	return weir.Rate(*r).String()
}

// Set stores s if it is a rate.
func (r *limitRate) Set(s string) error {
	rate, err := weir.ParseRate(s)
	if err != nil {
		return errors.New("must be a rate such as 20/s")
	}
	*r = limitRate(rate)
	return nil
}

// Type is what help shows in place of a value.
func (*limitRate) Type() string { return "rate" }

// burst is how often an address may ask at once.
func (r limitRate) burst() int64 {
	const factor, most = 5, 1_000_000_000_000_000
	return min(max(r.Permits, 1), most/factor) * factor
}

// refusalRate is the value of --refusal-log.
type refusalRate struct {
	rate weir.Rate
	off  bool
}

// String is the current value.
func (r *refusalRate) String() string {
	switch {
	case r.off:
		return "off"
	case r.rate == (weir.Rate{}):
		return ""
	default:
		return r.rate.String()
	}
}

// Set stores s if it is a rate, or off.
func (r *refusalRate) Set(s string) error {
	if s == "off" {
		*r = refusalRate{off: true}
		return nil
	}
	rate, err := weir.ParseRate(s)
	if err != nil {
		return errors.New("must be a rate such as 1/s, or off")
	}
	*r = refusalRate{rate: rate}
	return nil
}

// Type is what help shows in place of a value.
func (*refusalRate) Type() string { return "rate|off" }

var (
	_ pflag.Value = (*limitRate)(nil)
	_ pflag.Value = (*refusalRate)(nil)
)
