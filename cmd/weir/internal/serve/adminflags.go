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
	"github.com/weirhq/weir/cmd/weir/internal/front"
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
	rate          weir.Rate

	auditPath            string
	auditSize, auditKept int

	refusalLog     weir.Rate // zero: off
	refusalKeys    string
	refusalSecrets string
}

func (f *adminFlags) register(fs *pflag.FlagSet) {
	fs.Var(flags.File(&f.tokenFile), "admin-token-file",
		"file with the token of 16 to 4096 characters that the admin pages need, or\nwith lines of a name and a token, read "+
			"again when it changes (default: none: the\npages are answered if weir listens on a loopback address)")
	fs.Var(flags.File(&f.clientCA), "admin-client-ca",
		"authorities in PEM whose client certificates let in at the admin pages\n(default: none)")
	f.rate = weir.PerSecond(20)
	fs.Var(rateFlag("rate", &f.rate, "must be a rate such as 20/s"), "admin-rate",
		"how often an address may ask for admin pages, with a burst of five times that")
	fs.BoolVar(&f.metricsPublic, "metrics-public", false, "answer /metrics to every client")
	fs.Var(flags.File(&f.auditPath), "audit-log",
		"file to which each change by the admin API is appended as a line of JSON\n"+
			"(default: none: the log has it, and the last 1000 are kept)")
	f.auditSize, f.auditKept = usualAuditSize, usualAuditKept
	fs.Var(flags.Int(&f.auditSize, 1, mostAuditSize), "audit-log-size",
		"megabytes at which --audit-log is put aside and begun anew, from 1 to 100000")
	fs.Var(flags.Int(&f.auditKept, 0, mostAuditKept), "audit-log-files",
		"files put aside that are kept, up to 10000; 0 for all")
	f.refusalLog = weir.PerSecond(1)
	fs.Var(rateFlag("rate|off", &f.refusalLog, "must be a rate such as 1/s, or off"), "refusal-log",
		"how many refusals of each policy are logged in the long run, or off")
	f.refusalKeys = "hashed"
	fs.Var(flags.OneOf(&f.refusalKeys, "hashed", "plain", "none"), "refusal-log-keys", "how the log has keys and clients")
	fs.Var(flags.File(&f.refusalSecrets), "refusal-log-secret-file",
		"file with 16 to 1024 bytes that make the hashes of keys in the log\n(default: none: some by chance, others each time)")
}

// check finds flags that do not go together. withTLS reports whether fronts speak TLS, withPages whether there
// are admin pages.
func (f *adminFlags) check(fs *pflag.FlagSet, withTLS, withPages bool) error {
	if !withPages {
		if err := flags.Alone(fs, "needs --"+frontAdmin+" or --"+frontHTTP+", where the admin pages are",
			"admin-token-file", "admin-client-ca", "admin-rate", "metrics-public"); err != nil {
			return err
		}
	}
	if f.clientCA != "" && !withTLS {
		return flags.Errorf("--admin-client-ca needs --tls-cert and --tls-key")
	}
	if f.auditPath == "" {
		if err := flags.Alone(fs, "needs --audit-log", "audit-log-size", "audit-log-files"); err != nil {
			return err
		}
	}
	if f.refusalLog == (weir.Rate{}) {
		if err := flags.Alone(fs, "cannot be combined with --refusal-log off",
			"refusal-log-keys", "refusal-log-secret-file"); err != nil {
			return err
		}
	}
	if f.refusalSecrets != "" && f.refusalKeys != "hashed" {
		return flags.Errorf("--refusal-log-secret-file needs --refusal-log-keys hashed")
	}
	return nil
}

// tokens are those that let in, nil if none do.
func (f *adminFlags) tokens(log *slog.Logger) (*front.Reread[[]adminguard.Token], error) {
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
	o := policy.RefusalLogOptions{Logger: log, Rate: f.refusalLog}
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

// rateFlag is a flag value that stores a rate into p. Where the kind has the word off, that is the zero rate.
func rateFlag(kind string, p *weir.Rate, must string) *flags.Value {
	const off = "off"
	text := func(r weir.Rate) string {
		if r == (weir.Rate{}) {
			return off
		}
		return r.String()
	}
	return flags.Of(kind, p, text, func(s string) (weir.Rate, error) {
		if s == off && strings.HasSuffix(kind, off) {
			return weir.Rate{}, nil
		}
		rate, err := weir.ParseRate(s)
		if err != nil {
			err = errors.New(must)
		}
		return rate, err
	})
}

// burstOf is how often an address may ask at once.
func burstOf(r weir.Rate) int64 {
	const factor, most = 5, 1_000_000_000_000_000
	return min(max(r.Permits, 1), most/factor) * factor
}
