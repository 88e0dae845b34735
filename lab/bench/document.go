package bench

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

//go:embed document.md.tmpl
var documentText string

var document = template.Must(template.New("document").Funcs(template.FuncMap{
	"table": func(t *table) string {
		var b strings.Builder
		t.writeMarkdown(&b)
		return b.String()
	},
	"goroutines": func(n int) string {
		if n == 1 {
			return "1 goroutine"
		}
		return fmt.Sprintf("%d goroutines", n)
	},
}).Parse(documentText))

// named is a table under a heading.
type named struct {
	Name  string
	Table *table
}

// sharedView is what the document shows of limits that processes share.
type sharedView struct {
	MachineTable *table
	Warnings     []string
	Tables       []explained
}

// explained is a table with what it shows.
type explained struct {
	named

	How string
}

// newSharedView makes the view of tables, each of which how explains by its name. Facts are names with what they are.
func newSharedView(tables []named, how map[string]string, versions []ModuleVersion, facts ...string) (v sharedView) {
	for _, t := range tables {
		v.Tables = append(v.Tables, explained{t, how[t.Name]})
	}
	v.MachineTable = &table{columns: []column{text("what"), text("which")}}
	for fact := range slices.Chunk(facts, 2) { //nolint:mnd // a name and what it is
		v.MachineTable.add(fact...)
	}
	v.MachineTable.addVersions(versions)
	return v
}

// addVersions adds a line for each module.
func (t *table) addVersions(all []ModuleVersion) {
	for _, v := range all {
		t.add(v.Name, "`"+v.Module+"` "+v.Version)
	}
}

// documentView is what the template shows.
type documentView struct {
	Report       Report
	MachineTable *table
	Ratios       *table
	Every        *table
	Admission    *table
	Goals        *table
	WhyMissed    string
	Crowds       []named
	Streams      []named
	Peers        []Peer
	Keyed        keyedView
	Rules        rulesView
	Redis        redisView
	Durable      durableView
	Wire         wireView
}

// WriteMarkdown writes the report as a document. Nothing in it depends on when it was written.
func (r Report) WriteMarkdown(w io.Writer) error {
	if err := document.Execute(w, r.documentView()); err != nil {
		return fmt.Errorf("bench: write the document: %w", err)
	}
	return nil
}

func (r Report) documentView() documentView {
	v := documentView{
		Report: r, MachineTable: r.machineTable(), Ratios: ratioTable(r.Rows), Every: everyTable(r.Rows),
		Admission: r.admissionTable(), Goals: goalTable(r.Goals()), WhyMissed: whyMissed(r.Goals()), Peers: Peers(),
		Keyed: r.Keyed.view(),
		Rules: r.Rules.view(), Redis: r.redisView(), Durable: r.durableView(), Wire: r.wireView(),
	}
	for _, c := range r.Crowds {
		v.Crowds = append(v.Crowds, named{c.Name, c.table()})
	}
	for _, s := range r.Streams {
		v.Streams = append(v.Streams, named{s.Name, s.table()})
	}
	return v
}

func (r Report) machineTable() *table {
	m := r.Machine
	t := &table{columns: []column{text("what"), text("which")}}
	t.add("processor", fmt.Sprintf("%s, %d cores", m.Processor, m.Cores))
	t.add("system", m.System)
	t.add("Go", fmt.Sprintf("%s, GOMAXPROCS %d", m.Go, m.Threads))
	t.add("measurement", fmt.Sprintf("%d interleaved rounds of %s for each subject of a row", r.Count, r.Time))
	if m.Load >= 0 {
		t.add("load average at the start", fmt.Sprintf("%.2f", m.Load))
	}
	t.addVersions(m.Versions)
	return t
}

func goalTable(goals []Goal) *table {
	t := &table{columns: []column{text("target"), number("measured"), text("met")}}
	for _, g := range goals {
		t.add(g.Name, g.Found, yes(g.Met))
	}
	return t
}
