package main_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// helm is the command with which `make chart` has Helm itself lint and render the chart. Building it takes minutes, so the tests
// execute the templates themselves otherwise, with those of its functions that the chart uses.
var helm = flag.String("helm", "", "command of Helm")

const chart = "deploy/helm/weir"

// object is what the tests know of one of Kubernetes.
type object = map[string]any

// TestChartIsTheManifests: with its own values the chart gives what deploy/kubernetes has, without the namespace.
func TestChartIsTheManifests(t *testing.T) {
	plain := objects(t, readDeploy(t, "deploy/kubernetes/weir.yaml"))
	delete(plain, "Namespace")
	rendered := renderChart(t, "weir", "weir", object{})
	for kind, want := range plain {
		if got := rendered[kind]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%v\nwant\n%v", kind, got, want)
		}
	}
	if len(rendered) != len(plain) {
		t.Errorf("the chart has %d objects, want %d", len(rendered), len(plain))
	}
}

// TestChartValues gives each value of the chart another one.
func TestChartValues(t *testing.T) {
	const config = "version: 1\npolicies: {p: {limit: 1/s}}\nrules: [{name: r, limits: p}]\n"
	rendered := renderChart(t, "edge", "gateway", object{
		"replicas": 3, "image": object{"repository": "registry.example.com/weir", "tag": "v0.2.0"}, "config": config,
		"adminTokenSecret": "token-of-edge", "extraArgs": []any{"--log-level=debug"},
		"resources": object{"limits": object{"memory": "1Gi"}}, "goMemLimit": "900MiB", "networkPolicy": false,
	})
	if _, ok := rendered["NetworkPolicy"]; ok || len(rendered) == 0 {
		t.Errorf("%d objects, NetworkPolicy %v", len(rendered), ok)
	}
	for kind, o := range rendered {
		if name, namespace := at(o, "metadata", "name"), at(o, "metadata", "namespace"); name != "edge" || namespace != "gateway" {
			t.Errorf("%s is named %v in %v", kind, name, namespace)
		}
	}
	if got := at(rendered["ConfigMap"], "data", "weir.yaml"); got != config {
		t.Errorf("the configuration is %q, want %q", got, config)
	}
	deployment := rendered["Deployment"]
	spec := []any{"spec", "template", "spec"}
	container := append(slices.Clone(spec), "containers", 0)
	for _, test := range []struct {
		path []any
		want any
	}{
		{[]any{"spec", "replicas"}, 3},
		{append(slices.Clone(container), "image"), "registry.example.com/weir:v0.2.0"},
		{append(slices.Clone(container), "resources", "limits", "memory"), "1Gi"},
		{append(slices.Clone(container), "env", 0, "value"), "900MiB"},
		{append(slices.Clone(spec), "volumes", 0, "configMap", "name"), "edge"},
		{append(slices.Clone(spec), "volumes", 1, "secret", "secretName"), "token-of-edge"},
		{append(slices.Clone(spec), "serviceAccountName"), "edge"},
	} {
		if got := at(deployment, test.path...); got != test.want {
			t.Errorf("%v is %v, want %v", test.path, got, test.want)
		}
	}
	args, ok := at(deployment, append(slices.Clone(container), "args")...).([]any)
	if !ok {
		t.Fatal("there are no arguments")
	}
	var words []string
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	if !slices.Contains(words, "--log-level=debug") {
		t.Errorf("arguments %q", words)
	}
	expectFlags(t, words)
}

// TestChartRefusesValues: a value that the chart does not know, or of another kind, is a mistake.
func TestChartRefusesValues(t *testing.T) {
	for _, wrong := range []object{
		{"replica": 2},
		{"replicas": 0},
		{"replicas": "2"},
		{"config": ""},
		{"config": object{"version": 1}},
		{"adminTokenSecret": ""},
		{"image": object{"digest": "x"}},
		{"goMemLimit": "450"},
		{"networkPolicy": "no"},
	} {
		if err := validate(t, wrong); err == nil {
			t.Errorf("%v is a value", wrong)
		}
	}
}

// at is what an object has at a path.
func at(o any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			inner, _ := o.(object)
			o = inner[step]
		case int:
			list, _ := o.([]any)
			if step >= len(list) {
				return nil
			}
			o = list[step]
		}
	}
	return o
}

// objects reads the objects of a file by their kinds.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	all := map[string]object{}
	for {
		var o object
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%v in\n%s", err, text)
		case o == nil:
			continue // nothing but a comment, or a condition that does not hold
		}
		kind := fmt.Sprint(o["kind"])
		if all[kind] != nil {
			t.Errorf("there are two of kind %s", kind)
		}
		all[kind] = o
	}
}

// readYAML reads a file of the chart.
func readYAML(t *testing.T, name string) object {
	t.Helper()
	var o object
	if err := yaml.Unmarshal([]byte(readDeploy(t, chart+"/"+name)), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// renderChart renders the chart and reads its objects by their kinds.
func renderChart(t *testing.T, name, namespace string, values object) map[string]object {
	t.Helper()
	if *helm != "" {
		return renderByHelm(t, name, namespace, values)
	}
	merged := merge(readYAML(t, "values.yaml"), values)
	if err := validate(t, merged); err != nil {
		t.Fatal(err)
	}
	scope := object{
		"Values": merged, "Release": object{"Name": name, "Namespace": namespace},
		"Chart": object{"AppVersion": readYAML(t, "Chart.yaml")["appVersion"]},
	}
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(chart), "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range files {
		parsed, err := template.New(filepath.Base(file)).Funcs(functions).Option("missingkey=error").ParseFiles(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := parsed.Execute(&out, scope); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".yaml" { // the others are for people
			text.WriteString("---\n" + out.String())
		}
	}
	return objects(t, text.String())
}

// functions are those of Helm that the chart uses.
var functions = template.FuncMap{
	"quote": func(text any) string { return fmt.Sprintf("%q", fmt.Sprint(text)) },
	"default": func(fallback, value any) any {
		if value == nil || value == "" {
			return fallback
		}
		return value
	},
	"indent": func(spaces int, text string) string {
		pad := strings.Repeat(" ", spaces)
		return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
	},
	"toYaml": func(value any) (string, error) {
		out, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(out), "\n"), err
	},
}

// merge replaces values by others, at any depth.
func merge(values, others object) object {
	for name, other := range others {
		inner, isObject := values[name].(object)
		if more, ok := other.(object); ok && isObject {
			other = merge(inner, more)
		}
		values[name] = other
	}
	return values
}

// validate holds values against the schema of the chart.
func validate(t *testing.T, values object) error {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(readDeploy(t, chart+"/values.schema.json")))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err = compiler.AddResource("values.schema.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(values)
}

// renderByHelm has Helm lint the chart and render it.
func renderByHelm(t *testing.T, name, namespace string, values object) map[string]object {
	t.Helper()
	given, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err = os.WriteFile(file, given, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("..", "..", filepath.FromSlash(chart))
	run := func(args ...string) string {
		words := append(strings.Fields(*helm), args...)
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("helm %q: %v\n%s%s", args, err, stdout.String(), stderr.String())
		}
		return stdout.String()
	}
	run("package", dir, "--destination="+t.TempDir())
	run("lint", "--strict", "--kube-version=1.31.0", "--values="+file, dir)
	return objects(t, run("template", name, dir, "--namespace="+namespace, "--kube-version=1.31.0", "--values="+file))
}
