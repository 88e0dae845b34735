package admintext

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// Heads of columns that are in several tables.
const (
	policyHead = "policy"
	keyHead    = "key"
)

// Overview writes the state of a server.
func Overview(w io.Writer, out terminal.Output, o *admin.Overview) {
	state := ""
	if o.Draining {
		state = ", " + out.Red("shutting down")
	}
	fmt.Fprintf(w, "%s %s, up %s%s\n", out.Bold("weir"), table.Printable(o.Version),
		table.Seconds(o.Now.Sub(o.Started).Seconds()), state)
	Loaded(w, out, &o.Config)
	denied := ""
	if o.Denied > 0 {
		denied = " (" + table.Number(o.Denied) + " denied by a rule)"
	}
	fmt.Fprintf(w, "requests       %s: %s refused%s, %s exempt, %s without a limit, %s gone while they waited\n",
		table.Number(o.Requests), table.Number(o.Refused), denied, table.Number(o.Exempt), table.Number(o.Unlimited),
		table.Number(o.Canceled))
	if o.Latency.Measured > 0 {
		fmt.Fprintf(w, "decisions      %s\n", Latency(&o.Latency))
	}
	files := ""
	if o.Process.OpenFiles >= 0 {
		files = ", " + table.Number(o.Process.OpenFiles) + " open files"
	}
	fmt.Fprintf(w, "process        %s heap, %s goroutines%s, %s of CPU time\n", humanize.IBytes(o.Process.HeapBytes),
		table.Number(o.Process.Goroutines), files, table.Seconds(o.Process.CPUSeconds))
	fmt.Fprintf(w, "policies       %d\n", len(o.Policies))
}

// Latency is how long decisions take, in words.
func Latency(l *admin.Latency) string {
	return fmt.Sprintf("half of them within %s, 99%% within %s, 99.9%% within %s", table.Seconds(l.P50), table.Seconds(l.P99),
		table.Seconds(l.P999))
}

// Loaded writes which configuration is in force.
func Loaded(w io.Writer, out terminal.Output, l *admin.Loaded) {
	file := "limits of the command line"
	if l.File != "" {
		file = table.Printable(l.File)
	}
	fmt.Fprintf(w, "configuration  %s, version %d, loaded %s; reloads: %s done, %s refused\n", file, l.Version,
		table.Time(l.Loaded), table.Number(l.Reloads), table.Number(l.Refused))
	if l.LastError != "" {
		refused := "the last reload was refused: " + table.Printable(strings.TrimPrefix(l.LastError, "weir: "))
		fmt.Fprintf(w, "               %s\n", out.Red(refused))
	}
}

// Limits are limits in words.
func Limits(all []admin.Limit) string {
	words := make([]string, len(all))
	for i, l := range all {
		words[i] = l.Holds
		if l.Name != "" && len(all) > 1 {
			words[i] = l.Name + ": " + l.Holds
		}
	}
	return table.Printable(strings.Join(words, "; "))
}

// Mode is how a policy is applied: "enforce", "shadow", or either of them with a candidate.
func Mode(p *admin.Policy) string {
	text := p.Mode.String()
	if len(p.Candidate) > 0 {
		text += "+candidate"
	}
	return text
}

// Kept says where the states of keys of a policy are: "local" is in the process.
func Kept(p *admin.Policy) string {
	if d := p.Durability.String(); d != "memory" && d != "" {
		return d
	}
	return p.Consistency.String()
}

// nearlyFull is from how much on a table of keys is said to be full, in percent.
const nearlyFull = 90

// Tracked is how many keys a policy tracks, in the fullest table of its limits, and how full that is if little room is left. It
// is "-" if the policy is not kept by the server alone, which does not know then.
func Tracked(p *admin.Policy) string {
	if Kept(p) != "local" {
		return "-"
	}
	if p.MaxKeys == 0 || 100*p.Keys < nearlyFull*p.MaxKeys {
		return table.Number(p.Keys)
	}
	return fmt.Sprintf("%s (%d%% full)", table.Number(p.Keys), 100*p.Keys/p.MaxKeys)
}

// Queued is how many permits are waited for, "-" where Tracked is.
func Queued(p *admin.Policy) string {
	if Kept(p) != "local" {
		return "-"
	}
	return table.Number(p.Queued)
}

// Policies writes a table of policies.
func Policies(w io.Writer, out terminal.Output, all []admin.Policy) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no policies")
		return
	}
	rows := [][]string{{"allowed", "refused", "queued", "keys", "locked out", "overrides", policyHead, "mode", "kept", "limits"}}
	for i := range all {
		p := &all[i]
		rows = append(rows, []string{
			table.Number(p.Granted), table.Number(p.Refused), Queued(p), Tracked(p),
			table.Number(p.Locked), table.Number(p.Overridden), p.Name, Mode(p), Kept(p), Limits(p.Limits),
		})
	}
	const numbers = 6
	table.Write(w, out, rows, numbers)
}

// Configuration writes what is in force, what became of the last reloads, and the rules.
func Configuration(w io.Writer, out terminal.Output, c *admin.Configuration) {
	Loaded(w, out, &c.Loaded)
	if len(c.Rules) > 0 {
		fmt.Fprintln(w)
		rows := make([][]string, 1, 1+len(c.Rules))
		rows[0] = []string{"matched", "failed", "rule", "limits", "where", "applies to"}
		for i := range c.Rules {
			r := &c.Rules[i]
			rows = append(rows, []string{table.Number(r.Matched), table.Number(r.Failed), r.Name, effect(r), r.Source, r.Match})
		}
		table.Write(w, out, rows, 2)
	}
	for i := range c.History {
		Reload(w, out, &c.History[i])
	}
}

// effect is what a rule does with its requests.
func effect(r *admin.Rule) string {
	text := strings.Join(r.Limits, ", ")
	switch {
	case r.Deny && r.Mode != policy.ModeEnforce.String():
		text = "denied (" + r.Mode + ")"
	case r.Deny:
		text = "denied"
	case r.Exempt:
		text = "exempt"
	}
	if r.Afterwards {
		text += " (charged afterwards)"
	}
	if r.Final {
		text += " (final)"
	}
	return text
}

// Reload writes what became of a reload.
func Reload(w io.Writer, out terminal.Output, r *admin.Reload) {
	fmt.Fprintln(w)
	what := fmt.Sprintf("version %d, %d changes", r.Version, len(r.Changes))
	if len(r.Mistakes) > 0 {
		what = out.Red("refused")
	}
	fmt.Fprintf(w, "%s by %s: %s\n", table.Time(r.Time), table.Printable(r.Cause), what)
	for _, line := range r.Changes {
		fmt.Fprintf(w, "  %s\n", table.Printable(line))
	}
	for _, line := range r.Mistakes {
		fmt.Fprintf(w, "  %s\n", table.Printable(strings.TrimPrefix(line, "weir: ")))
	}
}

// Replicas writes the state of those who share limits.
func Replicas(w io.Writer, out terminal.Output, r *admin.Replicas) {
	if r.Store == nil && r.Cluster == nil {
		fmt.Fprintln(w, "no limits are shared: no policy is in a store or in a cluster")
		return
	}
	if r.Store != nil {
		store, bad := Store(r.Store)
		fmt.Fprintln(w, lead(out, "store", store, bad))
		fields(w, r.Store)
	}
	if r.Cluster != nil {
		cluster, bad := Cluster(r.Cluster)
		fmt.Fprintln(w, lead(out, "cluster", cluster, bad))
		fields(w, r.Cluster)
	}
}

// fields writes what any front or store says about itself, as it says it.
func fields(w io.Writer, v any) {
	text, err := json.MarshalIndent(v, "  ", "  ")
	if err != nil { // it has come as JSON
		return
	}
	fmt.Fprintf(w, "  %s\n", text)
}

// Policy writes all that is known of a policy, but for its keys.
func Policy(w io.Writer, out terminal.Output, p *admin.Policy) {
	fmt.Fprintf(w, "%s: %s, kept %s", out.Bold("policy "+table.Printable(p.Name)), Mode(p), p.Consistency)
	if d := p.Durability.String(); d != "memory" {
		fmt.Fprintf(w, ", durability %s", d)
	}
	fmt.Fprintln(w)
	for _, l := range p.Limits {
		fmt.Fprintf(w, "  limit %s\n", named(l))
	}
	for _, l := range p.Candidate {
		fmt.Fprintf(w, "  candidate %s\n", named(l))
	}
	for _, part := range [][2]string{
		{keyHead, p.Key}, {"lockout", p.Lockout}, {"parent", p.Parent}, {"on failure", p.Fail}, {"where", p.Source},
	} {
		if part[1] != "" {
			fmt.Fprintf(w, "  %s: %s\n", part[0], table.Printable(part[1]))
		}
	}
	fmt.Fprintf(w, "  %s allowed, %s refused, %s of them locked out, %s could not be evaluated\n", table.Number(p.Granted),
		table.Number(p.Refused), table.Number(p.LockedOut), table.Number(p.Failed))
	where := ""
	if len(p.Limits) > 1 && p.MaxKeys > 0 {
		where = " in the fullest table of its limits"
	}
	fmt.Fprintf(w, "  %s of %s keys%s, %s permits waited for, %s keys locked out, %s overridden\n", table.Number(p.Keys),
		table.Number(p.MaxKeys), where, table.Number(p.Queued), table.Number(p.Locked), table.Number(p.Overridden))
	if p.Untracked+p.Full > 0 {
		fmt.Fprintf(w, "  %s allowed and %s refused as there was no room for another key\n", table.Number(p.Untracked),
			table.Number(p.Full))
	}
	if p.Unavailable > 0 {
		fmt.Fprintf(w, "  %s the store could not decide on\n", table.Number(p.Unavailable))
	}
	if d := p.Difference; d != nil {
		fmt.Fprintf(w, "  of %s requests the other limits would have refused %s more, and allowed %s more\n",
			table.Number(d.Requests), table.Number(d.NewlyRefused), table.Number(d.NewlyAdmitted))
		for _, k := range d.RefusedKeys {
			fmt.Fprintf(w, "    refused more: %s, %s times\n", table.Key(k.Key), table.Number(k.Count))
		}
		for _, k := range d.AdmittedKeys {
			fmt.Fprintf(w, "    allowed more: %s, %s times\n", table.Key(k.Key), table.Number(k.Count))
		}
	}
}

func named(l admin.Limit) string {
	if l.Name == "" {
		return table.Printable(l.Holds)
	}
	return table.Printable(l.Name + ": " + l.Holds)
}
