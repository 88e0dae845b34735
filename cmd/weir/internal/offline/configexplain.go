package offline

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// mostRepeats bounds --repeat.
const mostRepeats = 1_000_000

// explainOptions are the flags of the command.
type explainOptions struct {
	request flags.Request
	repeat  int64
	at      time.Time
	json    bool
}

// aboutRequest are the flags that need --request.
var aboutRequest = append(flags.RequestNames(), "repeat", "at", "json")

func explainCommand() *cobra.Command {
	o := explainOptions{repeat: 1}
	cmd := &cobra.Command{
		Use:   "explain [flags] FILE",
		Short: "Explain a configuration, or what it does with a request",
		Long: `explain writes in words which limits a configuration has, and to which
requests they apply.

With --request it tells what would become of a request: which rules match and
which do not, and on which condition; of each limit the key, how many permits
remain before and after, and what would have passed. The limits begin with
fresh state, as when a server starts, and --repeat tells what is said to the
last of so many such requests. Nothing is sent to a server: shared policies are
kept here, as if there were one process. Of leased ones servers allow less at
once, as "weir config check" tells.

--json prints one object: request, at, repeat, and of the requests before the
last how many were allowed; then explanation, with rules and limits. Durations
are in seconds, and -1 stands for never.

The exit status is 0 whether the request is allowed or refused, and 2 if the
configuration has mistakes or is not there.`,
		Example: `  weir config explain weir.yaml
  weir config explain weir.yaml --request 'GET https://api.example.com/login' --client 192.0.2.1
  weir config explain weir.yaml --request 'POST /login' -H 'X-Plan: gold' --repeat 100
  weir config explain weir.yaml --request 'POST /v1/chat' --cost 900 --attribute team=blue --json`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) != 1 {
				return flags.Errorf("explain needs one FILE, not %d", len(files))
			}
			return nil
		},
		ValidArgsFunction: yamlFiles,
		RunE:              func(cmd *cobra.Command, files []string) error { return explain(cmd, &o, files[0]) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.request.Register(fs)
	fs.Var(flags.Int(&o.repeat, 1, mostRepeats), "repeat",
		"send it so often at the same moment, and explain the last, from 1 to 1000000")
	fs.Var(moment(&o.at), "at", "when it comes, such as 2026-11-21T10:00:00Z (default: now)")
	fs.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// moment returns a flag value that is a time with its zone.
func moment(p *time.Time) *flags.Value {
	show := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	return flags.Of("time", p, show, func(s string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil || t.Year() < 1970 || t.Year() > 2099 {
			return t, flags.Errorf("must be a time with its zone, such as 2026-11-21T10:00:00Z, from 1970 to 2099")
		}
		return t, nil
	})
}

func explain(cmd *cobra.Command, o *explainOptions, name string) error {
	if o.request.Line() == "" {
		if err := flags.Alone(cmd.Flags(), "needs --request", aboutRequest...); err != nil {
			return err
		}
	}
	at := o.at
	if at.IsZero() {
		at = time.Now()
	}
	file, err := config.Load(name, config.Options{HasStore: true, StateFile: stateOfServer, Now: func() time.Time { return at }})
	if err != nil {
		return flags.InvalidFile(cmd.ErrOrStderr(), err)
	}
	flags.WarnMistakes(cmd.ErrOrStderr(), terminal.Of(cmd.ErrOrStderr()), file.Warnings)
	w := cmd.OutOrStdout()
	if o.request.Line() == "" {
		var text bytes.Buffer
		file.Explain(&text)
		_, err = text.WriteTo(w)
		return err
	}
	r, err := o.request.Describe()
	if err != nil {
		return err
	}
	engine, err := policy.NewEngine(file.Set, policy.EngineOptions{Clock: manualclock.New(at.UnixNano()), Alone: true})
	if err != nil {
		return err
	}
	defer engine.Close() //nolint:errcheck // nobody waits
	allowed := int64(0)
	for i := range o.repeat - 1 {
		if err := cmd.Context().Err(); i%betweenLooks == 0 && err != nil {
			return err
		}
		var v policy.Verdict
		if engine.Take(r, &v); v.Allowed { // and not released: all come at the same moment
			allowed++
		}
	}
	explanation := engine.Explain(r)
	return o.write(w, &explanation, file.Bounds(), r, at, allowed)
}

func (o *explainOptions) write(
	w io.Writer, e *policy.Explanation, bounds []config.Bound, r *policy.Request, at time.Time, allowed int64,
) error {
	if o.json {
		return terminal.PrintJSON(w, struct {
			Request       string                    `json:"request"`
			Client        string                    `json:"client,omitempty"`
			At            time.Time                 `json:"at"`
			Repeat        int64                     `json:"repeat"`
			AllowedBefore int64                     `json:"allowed_before"`
			Explanation   *operator.ExplanationJSON `json:"explanation"`
		}{o.request.Line(), o.request.Client(), at.UTC(), o.repeat, allowed, operator.ExplanationOf(e)})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s%s", r.Method, r.Host, r.Path)
	if r.Client.IsValid() {
		fmt.Fprintf(&text, " from %s", r.Client)
	}
	if o.repeat > 1 {
		fmt.Fprintf(&text, ", request %d of %d at the same moment (%d of those before were allowed)", o.repeat, o.repeat, allowed)
	}
	text.WriteString(":\n")
	operator.WriteExplanation(&text, terminal.Of(w), operator.ExplanationOf(e), "  ", true, time.Now())
	for i := range e.Limits {
		if b := lowered(&e.Limits[i], bounds); b != nil {
			fmt.Fprintf(&text, "  note: %s/%s is leased: servers that share it grant at most %d permits at once\n",
				b.Policy, b.Limit, b.AtOnce)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// lowered is the bound of a limit of which servers grant less at once than is explained, as it is leased; nil if there is none.
func lowered(l *policy.ExplainedLimit, bounds []config.Bound) *config.Bound {
	for i := range bounds {
		b := &bounds[i]
		if b.Policy == l.Policy && b.Limit == l.Limit && b.Holds == l.Holds && b.Consistency == policy.ConsistencyLeased &&
			!b.RoundTrip && b.AtOnce > 0 && b.AtOnce < l.Decision.Limit {
			return b
		}
	}
	return nil
}
