package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// Overview is the state of a server.
type Overview struct {
	// Version is that of the program, Started when it has begun, Now when this was said.
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	// Draining tells that the server is shutting down.
	Draining bool `json:"draining"`
	// NotReady is why durable limits cannot be decided, for which GET /readyz is 503, "" if they can.
	NotReady string `json:"not_ready,omitempty"`
	Config   Loaded `json:"config"`
	// Requests and the like are counts since the start: see [policy.Report].
	Requests  uint64   `json:"requests"`
	Refused   uint64   `json:"refused"`
	Denied    uint64   `json:"denied"`
	Exempt    uint64   `json:"exempt"`
	Unlimited uint64   `json:"unlimited"`
	Canceled  uint64   `json:"canceled"`
	Latency   Latency  `json:"latency"`
	Process   Process  `json:"process"`
	Policies  []Policy `json:"policies"`
	// Fronts are what each front says about itself, by its name, as in /v1/status.
	Fronts map[string]any `json:"fronts,omitempty"`
}

// Latency is how long decisions take, in seconds.
type Latency struct {
	Measured uint64  `json:"measured"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
	// Buckets are those of [policy.Latency] that are not empty: up to how many seconds, and how many.
	Buckets [][2]float64 `json:"buckets"`
}

// Process is what the program uses.
type Process struct {
	Goroutines int     `json:"goroutines"`
	HeapBytes  uint64  `json:"heap_bytes"`
	OpenFiles  int     `json:"open_files"` // -1 if it is not known
	CPUSeconds float64 `json:"cpu_seconds"`
}

// Policy is a policy in force, and what it has counted since the start.
type Policy struct {
	policy.PolicyReport

	// Limits are its limits in words, by name.
	Limits []Limit `json:"limits"`
	// Candidate are those of its candidate.
	Candidate []Limit `json:"candidate,omitempty"`
	// Key says how the key is made of a request, "" if all requests share one state. Parent is the policy above.
	Key    string `json:"key,omitempty"`
	Parent string `json:"parent,omitempty"`
	Fail   string `json:"fail"`
	Source string `json:"source,omitempty"`
	// Lockout is that in words, "" if there is none.
	Lockout string `json:"lockout,omitempty"`
}

// Limit is a limit in words.
type Limit struct {
	Name  string `json:"name"`
	Holds string `json:"holds"` // such as "10/s, burst 20"
}

// Rule is a rule, and what it has counted.
type Rule struct {
	Name string `json:"name"`
	// Match is what it matches in words, "all requests" for those. Limits are the policies that it applies.
	Match  string   `json:"match"`
	Limits []string `json:"limits"`
	Exempt bool     `json:"exempt"`
	// Deny reports whether it denies its requests, and Mode how: "enforce", "shadow" or "off".
	Deny  bool   `json:"deny"`
	Mode  string `json:"mode"`
	Final bool   `json:"final"`
	// Afterwards says that its requests are charged also if they are refused.
	Afterwards bool   `json:"afterwards"`
	Source     string `json:"source,omitempty"`
	Matched    uint64 `json:"matched"`
	Failed     uint64 `json:"failed"`
}

// Loaded is which configuration is in force.
type Loaded struct {
	File    string    `json:"file"` // "" if the limit is that of the command line
	Version uint64    `json:"version"`
	Loaded  time.Time `json:"loaded"`
	// Reloads counts those that were put in force after the first one, Refused those that could not be.
	Reloads uint64 `json:"reloads"`
	Refused uint64 `json:"reloads_refused"`
	// LastError is why the last one was refused, "" if it was not.
	LastError string `json:"last_error,omitempty"`
}

// Configuration is what is in force, with what became of the last reloads.
type Configuration struct {
	Loaded

	// Text is the file in force, without what came from the environment: as it was read, or "" if it is too large or there is
	// none.
	Text string `json:"text"`
	// History are the last reloads, the last first.
	History []Reload `json:"history"`
	Rules   []Rule   `json:"rules"`
}

// Reload is what became of a reload.
type Reload struct {
	Time    time.Time `json:"time"`
	Cause   string    `json:"cause"` // such as "SIGHUP", "file" and "API"
	Version uint64    `json:"version"`
	Changes []string  `json:"changes,omitempty"` // at most 200, each such as "policies.login.limits.1m.rate: 5/m -> 6/m (kept)"
	// Mistakes are why it was refused, none if it was not.
	Mistakes []string `json:"mistakes,omitempty"`
}

// Replicas are the others that share limits, and how what they share is.
type Replicas struct {
	// Store is what /v1/status has under "store", Cluster what it has under "cluster"; nil if there is none.
	Store   any `json:"store,omitempty"`
	Cluster any `json:"cluster,omitempty"`
}

// Report is the state of one policy for people, of which there is a text form too: its counts, and the 20 keys under the most
// pressure, those locked out first.
type Report struct {
	Time   time.Time `json:"time"`
	Policy Policy    `json:"policy"`
	Top    []Key     `json:"top"`
}

// Words that name columns, flags and parameters.
const (
	policyWord = "policy"
	keyWord    = "key"
	limitWord  = "limit"
)

// writeOverview writes the state of a server.
func writeOverview(w io.Writer, out terminal.Output, o *Overview) {
	state := ""
	if o.Draining {
		state = ", " + out.Red("shutting down")
	}
	fmt.Fprintf(w, "%s %s, up %s%s\n", out.Bold("weir"), terminal.Printable(o.Version),
		Seconds(o.Now.Sub(o.Started).Seconds()), state)
	if o.NotReady != "" {
		fmt.Fprintf(w, "not ready      %s\n", out.Red(NotReadyText(o.NotReady)))
	}
	writeLoaded(w, out, &o.Config)
	denied := ""
	if o.Denied > 0 {
		denied = " (" + terminal.Number(o.Denied) + " denied by a rule)"
	}
	fmt.Fprintf(w, "requests       %s: %s refused%s, %s exempt, %s without a limit, %s gone while they waited\n",
		terminal.Number(o.Requests), terminal.Number(o.Refused), denied, terminal.Number(o.Exempt), terminal.Number(o.Unlimited),
		terminal.Number(o.Canceled))
	if o.Latency.Measured > 0 {
		fmt.Fprintf(w, "decisions      %s\n", latencyText(&o.Latency))
	}
	files := ""
	if o.Process.OpenFiles >= 0 {
		files = ", " + terminal.Number(o.Process.OpenFiles) + " open files"
	}
	fmt.Fprintf(w, "process        %s heap, %s goroutines%s, %s of CPU time\n", humanize.IBytes(o.Process.HeapBytes),
		terminal.Number(o.Process.Goroutines), files, Seconds(o.Process.CPUSeconds))
	fmt.Fprintf(w, "policies       %d\n", len(o.Policies))
}

// NotReadyText says in words that durable limits cannot be decided, and why.
func NotReadyText(why string) string {
	return "durable limits cannot be decided: " + terminal.Printable(strings.TrimPrefix(why, "weir: ")) +
		"; the fail of each policy decides"
}

// latencyText is how long decisions take, in words.
func latencyText(l *Latency) string {
	return fmt.Sprintf("half of them within %s, 99%% within %s, 99.9%% within %s", Seconds(l.P50), Seconds(l.P99),
		Seconds(l.P999))
}

// writeLoaded writes which configuration is in force.
func writeLoaded(w io.Writer, out terminal.Output, l *Loaded) {
	file := "limits of the command line"
	if l.File != "" {
		file = terminal.Printable(l.File)
	}
	fmt.Fprintf(w, "configuration  %s, version %d, loaded %s; reloads: %s done, %s refused\n", file, l.Version,
		Time(l.Loaded), terminal.Number(l.Reloads), terminal.Number(l.Refused))
	if l.LastError != "" {
		refused := "the last reload was refused: " + terminal.Printable(strings.TrimPrefix(l.LastError, "weir: "))
		fmt.Fprintf(w, "               %s\n", out.Red(refused))
	}
}

// LimitsText are limits in words.
func LimitsText(all []Limit) string {
	words := make([]string, len(all))
	for i, l := range all {
		words[i] = l.Holds
		if l.Name != "" && len(all) > 1 {
			words[i] = l.Name + ": " + l.Holds
		}
	}
	return terminal.Printable(strings.Join(words, "; "))
}

// Mode is how a policy is applied: "enforce", "shadow", or either of them with a candidate.
func Mode(p *Policy) string {
	text := p.Mode.String()
	if len(p.Candidate) > 0 {
		text += "+candidate"
	}
	return text
}

// keptLocal is what Kept says of the states that only the process has.
const keptLocal = "local"

// Kept says where the states of keys of a policy are: "local" is in the process.
func Kept(p *Policy) string {
	if d := p.Durability.String(); d != "memory" && d != "" {
		return d
	}
	return p.Consistency.String()
}

// nearlyFull is from how much on a table of keys is said to be full, in percent.
const nearlyFull = 90

// Tracked is how many keys a policy tracks, in the fullest table of its limits, and how full that is if little room is left. It
// is "-" if the policy is not kept by the server alone, which does not know then.
func Tracked(p *Policy) string {
	if Kept(p) != keptLocal {
		return "-"
	}
	if p.MaxKeys == 0 || 100*p.Keys < nearlyFull*p.MaxKeys {
		return terminal.Number(p.Keys)
	}
	return fmt.Sprintf("%s (%d%% full)", terminal.Number(p.Keys), 100*p.Keys/p.MaxKeys)
}

// Queued is how many permits are waited for, "-" where Tracked is.
func Queued(p *Policy) string {
	if Kept(p) != keptLocal {
		return "-"
	}
	return terminal.Number(p.Queued)
}

// policies is a table of policies.
var policies = list[Policy]{
	none:    "no policies",
	head:    []string{"allowed", "refused", "queued", "keys", "locked out", "overrides", policyWord, "mode", "kept", "limits"},
	numbers: 6,
	row: func(p *Policy) []string {
		return []string{
			terminal.Number(p.Allowed), terminal.Number(p.Refused), Queued(p), Tracked(p),
			terminal.Number(p.Locked), terminal.Number(p.Overridden), p.Name, Mode(p), Kept(p), LimitsText(p.Limits),
		}
	},
}

// rules is a table of rules.
var rules = list[Rule]{
	head:    []string{"matched", "failed", "rule", "limits", "where", "applies to"},
	numbers: 2,
	row: func(r *Rule) []string {
		return []string{terminal.Number(r.Matched), terminal.Number(r.Failed), r.Name, ruleEffect(r), r.Source, r.Match}
	},
}

// WriteConfiguration writes what is in force, what became of the last reloads, and the rules.
func WriteConfiguration(w io.Writer, out terminal.Output, c *Configuration) {
	writeLoaded(w, out, &c.Loaded)
	if len(c.Rules) > 0 {
		fmt.Fprintln(w)
		rules.write(w, out, &c.Rules)
	}
	for i := range c.History {
		writeReload(w, out, &c.History[i])
	}
}

// ruleEffect is what a rule does with its requests.
func ruleEffect(r *Rule) string {
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

// writeReload writes what became of a reload.
func writeReload(w io.Writer, out terminal.Output, r *Reload) {
	fmt.Fprintln(w)
	what := fmt.Sprintf("version %d, %s", r.Version, terminal.Plural(len(r.Changes), "change", "changes"))
	if len(r.Mistakes) > 0 {
		what = out.Red("refused")
	}
	fmt.Fprintf(w, "%s by %s: %s\n", Time(r.Time), terminal.Printable(r.Cause), what)
	for _, line := range r.Changes {
		fmt.Fprintf(w, "  %s\n", terminal.Printable(line))
	}
	for _, line := range r.Mistakes {
		fmt.Fprintf(w, "  %s\n", terminal.Printable(strings.TrimPrefix(line, "weir: ")))
	}
}

// writeReplicas writes the state of the servers that share limits.
func writeReplicas(w io.Writer, out terminal.Output, r *Replicas) {
	if r.Store == nil && r.Cluster == nil {
		fmt.Fprintln(w, "no limits are shared: no policy is in a store or in a cluster")
		return
	}
	if r.Store != nil {
		store, bad := StoreState(r.Store)
		fmt.Fprintln(w, lead(out, "store", store, bad))
		writeFields(w, r.Store, "  ")
	}
	if r.Cluster != nil {
		cluster, bad := ClusterState(r.Cluster)
		fmt.Fprintln(w, lead(out, "cluster", cluster, bad))
		writeFields(w, r.Cluster, "  ")
	}
}

// writeFields writes what a store or a cluster says about itself: what stands by itself first, then what has parts.
func writeFields(w io.Writer, v any, indent string) {
	fields, _ := v.(map[string]any)
	names := slices.Sorted(maps.Keys(fields))
	width := 0
	for _, name := range names {
		width = max(width, len(name))
	}
	for _, name := range names {
		if _, parts := fields[name].(map[string]any); !parts {
			words, value := field(name, fields[name])
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, words, value)
		}
	}
	for _, name := range names {
		if _, parts := fields[name].(map[string]any); parts {
			fmt.Fprintf(w, "%s%s:\n", indent, terminal.Printable(strings.ReplaceAll(name, "_", " ")))
			writeFields(w, fields[name], indent+"  ")
		}
	}
}

// field is a name and a value of JSON in words.
func field(name string, v any) (words, value string) {
	name, duration := strings.CutSuffix(name, "_ns")
	words = terminal.Printable(strings.ReplaceAll(name, "_", " "))
	switch v := v.(type) {
	case bool:
		value = map[bool]string{true: "yes", false: "no"}[v]
	case string:
		value = terminal.Printable(v)
	case float64:
		if value = strconv.FormatFloat(v, 'f', -1, 64); duration {
			value = time.Duration(v).Round(time.Millisecond).String()
		}
	default:
		text, err := json.Marshal(v)
		if err != nil { // it has come as JSON
			return words, ""
		}
		value = string(terminal.PrintableJSON(text))
	}
	return words, value
}

// WriteReport writes the report of a policy.
func WriteReport(w io.Writer, out terminal.Output, r *Report) {
	WritePolicy(w, out, &r.Policy)
	fmt.Fprintf(w, "\nkeys under the most pressure, at %s:\n", Time(r.Time))
	keys.write(w, out, &r.Top)
}

// WritePolicy writes all that is known of a policy, but for its keys.
func WritePolicy(w io.Writer, out terminal.Output, p *Policy) {
	fmt.Fprintf(w, "%s: %s, kept %s\n", out.Bold("policy "+terminal.Printable(p.Name)), Mode(p), Kept(p))
	for _, l := range p.Limits {
		fmt.Fprintf(w, "  limit %s\n", named(l))
	}
	for _, l := range p.Candidate {
		fmt.Fprintf(w, "  candidate %s\n", named(l))
	}
	for _, part := range [][2]string{
		{keyWord, p.Key}, {"lockout", p.Lockout}, {"parent", p.Parent}, {"on failure", p.Fail}, {"where", p.Source},
	} {
		if part[1] != "" {
			fmt.Fprintf(w, "  %s: %s\n", part[0], terminal.Printable(part[1]))
		}
	}
	fmt.Fprintf(w, "  %s allowed, %s refused, %s of them locked out, %s could not be evaluated\n", terminal.Number(p.Allowed),
		terminal.Number(p.Refused), terminal.Number(p.LockedOut), terminal.Number(p.Failed))
	fmt.Fprint(w, "  ")
	if Kept(p) == keptLocal {
		where := ""
		if len(p.Limits) > 1 && p.MaxKeys > 0 {
			where = " in the fullest table of its limits"
		}
		fmt.Fprintf(w, "%s of %s%s, %s waited for, ", terminal.Number(p.Keys), terminal.Plural(p.MaxKeys, "key", "keys"), where,
			terminal.Plural(p.Queued, "permit", "permits"))
	}
	fmt.Fprintf(w, "%s locked out, %s overridden\n", terminal.Plural(p.Locked, "key", "keys"), terminal.Number(p.Overridden))
	if p.Untracked+p.Full > 0 {
		fmt.Fprintf(w, "  %s allowed and %s refused as there was no room for another key\n", terminal.Number(p.Untracked),
			terminal.Number(p.Full))
	}
	if p.Forgiven > 0 {
		fmt.Fprintf(w, "  %s forgiven, beyond the largest debt\n", terminal.Plural(p.Forgiven, "permit", "permits"))
	}
	if p.Unavailable > 0 {
		fmt.Fprintf(w, "  %s the store could not decide on\n", terminal.Number(p.Unavailable))
	}
	if d := p.Difference; d != nil {
		fmt.Fprintf(w, "  of %s the other limits would have refused %s more, and allowed %s more\n",
			terminal.Plural(d.Requests, "request", "requests"), terminal.Number(d.NewlyRefused), terminal.Number(d.NewlyAdmitted))
		for _, k := range d.RefusedKeys {
			fmt.Fprintf(w, "    refused more: %s, %s\n", ShownKey(k.Key), times(k.Count))
		}
		for _, k := range d.AdmittedKeys {
			fmt.Fprintf(w, "    allowed more: %s, %s\n", ShownKey(k.Key), times(k.Count))
		}
	}
}

func named(l Limit) string {
	if l.Name == "" {
		return terminal.Printable(l.Holds)
	}
	return terminal.Printable(l.Name + ": " + l.Holds)
}
