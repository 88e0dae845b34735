package metrics_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/policy"
)

const deploy = "../../../../deploy"

// promtool runs the tool of Prometheus, which `make deps` installs.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%.4000s", strings.Join(args, " "), err, out)
	}
}

// rule is one of a file of Prometheus.
type rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts.yml"))
	fatal(t, err)
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	fatal(t, yaml.Unmarshal(text, &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 15 {
		t.Fatalf("%d rules", len(all))
	}
	return all
}

func TestAlertRules(t *testing.T) {
	promtool(t, "check", "rules", filepath.Join(deploy, "prometheus", "alerts.yml"))
	promtool(t, "test", "rules", filepath.Join(deploy, "prometheus", "alerts_test.yml"))
}

// Each alert says how bad it is, what it means and where it stands what to do, and has a test in which it fires and one in
// which it does not.
func TestAlertsAreComplete(t *testing.T) {
	var tests struct {
		Tests []struct {
			Expressions []struct {
				Expr    string `yaml:"expr"`
				Samples []any  `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		} `yaml:"tests"`
	}
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts_test.yml"))
	fatal(t, err)
	fatal(t, yaml.Unmarshal(text, &tests))
	fires, silent := map[string]bool{}, map[string]bool{}
	alert := regexp.MustCompile(`alertname="(\w+)"`)
	for _, test := range tests.Tests {
		for _, e := range test.Expressions {
			name := alert.FindStringSubmatch(e.Expr)[1]
			fires[name], silent[name] = fires[name] || len(e.Samples) > 0, silent[name] || len(e.Samples) == 0
		}
	}
	runbooks, err := os.ReadFile("../../../../docs/troubleshooting.md")
	fatal(t, err)
	anchors := anchorsOf(string(runbooks))
	page, err := os.ReadFile(documented)
	fatal(t, err)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s says nothing", r.Alert)
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "https://github.com/weirhq/weir/blob/main/docs/troubleshooting.md#")
		if !ok || !slices.Contains(anchors, anchor) {
			t.Errorf("%s: docs/troubleshooting.md has no heading for %q", r.Alert, r.Annotations["runbook_url"])
		}
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: there is a test in which it fires: %t, in which it does not: %t", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		row := "| `" + r.Alert + "` | " + r.Labels["severity"] + " |"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/metrics.md has no line %s", row)
		}
	}
}

// anchorsOf are those of the headings of a page, as GitHub makes them.
func anchorsOf(page string) (anchors []string) {
	other := regexp.MustCompile(`[^a-z0-9 _-]`)
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchor := other.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	return anchors
}

// known are the names that queries may have, each with its labels.
type known map[string][]string

// metricsKnown are those of a server, and what Prometheus adds.
func metricsKnown(t *testing.T, rules []rule) known {
	t.Helper()
	all := known{"up": {}, "policy:weir_refused:ratio_rate5m": {"policy"}, "policy:weir_refused:ratio_rate1h": {"policy"}}
	for _, r := range rules {
		if r.Record != "" && all[r.Record] == nil {
			t.Errorf("no labels are known of %s", r.Record)
		}
	}
	for name, f := range gather(t, start(t, everything(t, limits(t, policy.EngineOptions{})))) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			all[name+"_bucket"], all[name+"_count"], all[name+"_sum"] = append(labels, "le"), labels, labels
		} else {
			all[name] = labels
		}
	}
	return all
}

var (
	quoted    = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	grouping  = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	metric    = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?\s*(\(?)`)
	variable  = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	isWord    = regexp.MustCompile(`^(and|or|unless|offset|bool|by|inf|nan)$`)
	durations = regexp.MustCompile(`\b\d+[smhd]\b`)
	labelName = regexp.MustCompile(`\b([a-z_]+)\s*(=~|!~|!=|=)`)
	ofScrape  = []string{"job", "instance"}
)

// check tells of what a query asks for that is not there.
func (k known) check(t *testing.T, where, query string) {
	t.Helper()
	for _, p := range k.problems(query) {
		t.Errorf("%s: %s", where, p)
	}
}

// problems are the metrics, and the labels of metrics, of a query that are not there.
func (k known) problems(query string) (problems []string) {
	query = quoted.ReplaceAllString(query, `""`)
	query = ranges.ReplaceAllString(query, " ")
	var grouped, labels []string
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(g[2], ",") {
			grouped = append(grouped, strings.TrimSpace(label))
		}
	}
	query = grouping.ReplaceAllString(query, " ")
	query = durations.ReplaceAllString(query, " ")
	asked := 0
	for _, m := range metric.FindAllStringSubmatch(query, -1) {
		if m[3] == "(" || isWord.MatchString(m[1]) {
			continue // a function, or a word of the language
		}
		of, ok := k[m[1]]
		if !ok {
			problems = append(problems, "there is no metric "+m[1])
			continue
		}
		asked++
		labels = append(labels, of...)
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(of, l[1]) && !slices.Contains(ofScrape, l[1]) {
				problems = append(problems, m[1]+" has no label "+l[1])
			}
		}
	}
	for _, label := range grouped {
		if !slices.Contains(labels, label) && !slices.Contains(ofScrape, label) {
			problems = append(problems, "no metric has the label "+label+" by which it groups")
		}
	}
	if asked == 0 && len(problems) == 0 {
		problems = append(problems, "it asks for no metric: "+query)
	}
	return problems
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	all := rules(t)
	k := metricsKnown(t, all)
	for _, r := range all {
		k.check(t, r.Alert+r.Record, r.Expr)
	}
}

// The check finds what is wrong.
func TestQueriesOfMetricsThatDoNotExist(t *testing.T) {
	k := metricsKnown(t, nil)
	for query, want := range map[string]string{
		`rate(weir_request_total[5m])`:                                    "there is no metric weir_request_total",
		`sum by (polcy) (weir_policy_keys)`:                               "no metric has the label polcy by which it groups",
		`sum by (policy) (weir_policy_keys{rule="x"})`:                    "weir_policy_keys has no label rule",
		`weir_policy_keys unless on (job) weir_polcy_info{mode="shadow"}`: "there is no metric weir_polcy_info",
		`vector(1)`: "it asks for no metric: vector(1)",
		`sum by (policy) (rate(weir_policy_requests_total{job="weir"}[5m] offset 1h)) > 0 and on (policy) weir_policy_keys > 1`: "",
	} {
		if got := strings.Join(k.problems(query), "; "); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
}

// panel is one of a dashboard.
type panel struct {
	ID          int      `json:"id"`
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Place       place    `json:"gridPos"` //nolint:tagliatelle // as Grafana has it
	Source      source   `json:"datasource"`
	Targets     []target `json:"targets"`
	Field       struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"` //nolint:tagliatelle // as Grafana has it
}

type place struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type target struct {
	Source source `json:"datasource"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"` //nolint:tagliatelle // as Grafana has it
}

// A dashboard shows what there is, in a grid without holes or overlaps, from the data source that is chosen, and its queries
// are ones that Prometheus understands.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "weir.json"))
	fatal(t, err)
	var board struct {
		UID        string  `json:"uid"`
		Title      string  `json:"title"`
		Panels     []panel `json:"panels"`
		Templating struct {
			List []struct {
				Name  string `json:"name"`
				Type  string `json:"type"`
				Query any    `json:"query"`
			} `json:"list"`
		} `json:"templating"`
		Annotations struct {
			List []target `json:"list"`
		} `json:"annotations"`
	}
	fatal(t, json.Unmarshal(text, &board))
	k := metricsKnown(t, nil)
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
		if q, ok := v.Query.(map[string]any); ok {
			query, _ := q["query"].(string)
			values := variable.FindStringSubmatch(query)
			if values == nil {
				t.Fatalf("the variable %s has the query %q", v.Name, query)
			}
			k.check(t, "variable "+v.Name, "sum by ("+values[2]+") ("+values[1]+")")
		}
	}
	for _, name := range []string{"datasource", "job", "instance", "policy"} {
		if !variables[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	var queries []string
	use := regexp.MustCompile(`\$\{?(\w+)\}?`)
	query := func(where string, q target) {
		if q.Source.UID != "${datasource}" || q.Source.Type != "prometheus" {
			t.Errorf("%s asks %v", where, q.Source)
		}
		for _, v := range use.FindAllStringSubmatch(q.Expr, -1) {
			if !variables[v[1]] {
				t.Errorf("%s: there is no variable %s", where, v[1])
			}
		}
		k.check(t, where, q.Expr)
		expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "weir", "$instance", ".*", "$policy", ".*").Replace(q.Expr)
		queries = append(queries, expr)
		labels := append([]string{"instance", "job"}, labelsOf(k, q.Expr)...)
		for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.Legend, -1) {
			if !slices.Contains(labels, l[1]) {
				t.Errorf("%s: the legend has a label %s, the metrics do not", where, l[1])
			}
		}
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	shown := 0
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("%q has the ID %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.Place.X; x < p.Place.X+p.Place.W; x++ {
			for y := p.Place.Y; y < p.Place.Y+p.Place.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q and %q are at the same place, or it leaves the grid", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		shown++
		if p.Description == "" || len(p.Targets) == 0 || p.Source.UID != "${datasource}" {
			t.Errorf("%q: %q, %d queries of %v", p.Title, p.Description, len(p.Targets), p.Source)
		}
		if p.Field.Defaults.Unit == "" && p.Type != "heatmap" && p.Title != "Versions" {
			t.Errorf("%q has no unit", p.Title)
		}
		for _, q := range p.Targets {
			query(p.Title, q)
		}
	}
	for _, q := range board.Annotations.List {
		query("annotation", q)
	}
	if shown < 30 {
		t.Errorf("%d panels", shown)
	}
	understood(t, queries)
}

// labelsOf are those of the metrics of a query.
func labelsOf(k known, query string) (labels []string) {
	for name, of := range k {
		if strings.Contains(query, name) {
			labels = append(labels, of...)
		}
	}
	return labels
}

// understood has Prometheus parse queries, as rules of a file.
func understood(t *testing.T, queries []string) {
	t.Helper()
	type recorded struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []recorded
	for _, q := range queries {
		if !slices.Contains(all, recorded{"q", q}) {
			all = append(all, recorded{"q", q})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": all}}})
	fatal(t, err)
	file := filepath.Join(t.TempDir(), "queries.yml")
	fatal(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", "--lint=none", file)
}

// What a server answers is what promtool takes for metrics in good order.
func TestPageIsInGoodOrder(t *testing.T) {
	page := ask(t, start(t, everything(t, limits(t, policy.EngineOptions{}))).Handler(), "GET", "").Body.Bytes()
	var own bytes.Buffer // Go's collectors have names that the tool complains of
	for line := range bytes.Lines(page) {
		if bytes.Contains(line, []byte("weir_")) {
			own.Write(line)
		}
	}
	c := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	c.Stdin = &own
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%.2000s", err, out)
	}
}
