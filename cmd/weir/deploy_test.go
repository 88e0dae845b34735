package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// readDeploy reads a file of the repository.
func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// expectFlags expects that weir serve takes the flags of a deployment: the only thing wrong with them is a configuration that is
// not there.
func expectFlags(t *testing.T, args []string) {
	t.Helper()
	if len(args) < 2 || args[0] != "serve" {
		t.Fatalf("%q is not weir serve", args)
	}
	help := weir(t, nil, "serve", "--help").stdout
	for _, arg := range args[1:] {
		if name, _, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "="); strings.HasPrefix(arg, "--") &&
			!strings.Contains(help, "--"+name+" ") && !strings.Contains(help, "--"+name+"\n") {
			t.Errorf("weir serve has no flag %s, %v", arg, ok)
		}
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = slices.Clone(args)
	for i, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--admin-token-file":
			args[i] = name + "=" + token
		case "--audit-log":
			args[i] = name + "=" + filepath.Join(dir, "audit")
		case "--config":
			args[i] = name + "=" + filepath.Join(dir, "none.yaml")
		case "--http", "--admin", "--resp", "--grpc":
			host, _, _ := strings.Cut(value, ":")
			args[i] = name + "=" + host + ":0"
		}
	}
	if got := weir(t, nil, args...); got.status != 2 || !strings.Contains(got.stderr, "none.yaml") {
		t.Errorf("%q: %d %s", args, got.status, got.stderr)
	}
}

// TestSystemdUnit has systemd check the unit, rate what it may do, and weir its flags.
func TestSystemdUnit(t *testing.T) {
	const name = "deploy/systemd/weir.service"
	text := readDeploy(t, name)
	// The program is not installed where the tests run.
	unit := filepath.Join(t.TempDir(), "weir.service")
	here := strings.Replace(text, "ExecStart=/usr/local/bin/weir", "ExecStart="+program, 1)
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", unit},
		// Exposure in tenths: 0 is nothing at all, 100 is everything.
		{"security", "--offline=true", "--threshold=15", "--no-pager", unit},
	} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Fatal("systemd-analyze is missing: `make deps` installs it on Debian")
		}
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %q: %v\n%s", args, err, out)
		}
	}
	if !strings.Contains(text, "\nMemoryMax=2G\n") || !strings.Contains(text, "\nEnvironment=GOMEMLIMIT=1840MiB\n") {
		t.Error("the garbage collector is not told a tenth less than the memory of the unit")
	}
	command := regexp.MustCompile(`(?s)\nExecStart=/usr/local/bin/weir (.*?[^\\])\n`).FindStringSubmatch(text)
	if command == nil {
		t.Fatal("there is no ExecStart")
	}
	words := strings.Fields(strings.ReplaceAll(command[1], "\\\n", " "))
	args := words[:1]
	for i := 1; i+1 < len(words); i += 2 {
		args = append(args, words[i]+"="+words[i+1])
	}
	expectFlags(t, args)
	for _, arg := range args {
		if name, value, _ := strings.Cut(arg, "="); (name == "--http" || name == "--admin") &&
			!strings.HasPrefix(value, "127.0.0.1:") {
			t.Errorf("%s: the unit listens on more than this machine", arg)
		}
	}
}

// TestPackagedConfiguration checks the file with which packages begin.
func TestPackagedConfiguration(t *testing.T) {
	if got := weir(t, nil, "config", "check", "../../deploy/packages/weir.yaml"); got.status != 0 {
		t.Errorf("%d %s%s", got.status, got.stdout, got.stderr)
	}
}

// TestDockerfiles: images have a program that needs nothing of a system, and run it as a user without rights.
func TestDockerfiles(t *testing.T) {
	var build []string
	for name, base := range map[string]string{
		"deploy/docker/Dockerfile": "scratch", "deploy/docker/release.Dockerfile": "gcr.io/distroless/static-debian12:nonroot",
	} {
		last := map[string]string{}
		for line := range strings.Lines(readDeploy(t, name)) {
			keyword, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if keyword == "FROM" {
				last = map[string]string{} // what stands before is of another image
			}
			last[keyword] = rest
			if at := strings.Index(rest, "go build"); keyword == "RUN" && at >= 0 {
				build = append(strings.Fields(rest[:at]), strings.Fields(rest[at:])...)
			}
		}
		for keyword, want := range map[string]string{
			"FROM": base, "USER": "65532:65532", "ENTRYPOINT": `["/weir"]`, "CMD": `["serve"]`, "RUN": "",
		} {
			if last[keyword] != want {
				t.Errorf("%s: %s is %q, want %q", name, keyword, last[keyword], want)
			}
		}
	}
	line := strings.Join(build, " ")
	for _, want := range []string{
		"CGO_ENABLED=0", "GOWORK=$PWD/deploy/release.work", "go build -C cmd/weir ", " -tags=grpcnotrace ", " -trimpath ", " -ldflags=-buildid= ",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q has no %q", line, want)
		}
	}
}

// TestReproducibleBuild links the program once more, in an environment that differs as that of another machine does, and compares it
// with the one that all tests use. The flags are not those of a release, for which everything would have to be compiled anew: `make
// reproducible` builds with these, in two directories, and expects that nothing of a system is needed either.
func TestReproducibleBuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output := filepath.Join(dir, "weir")
	if err := build(output, false, "GOTMPDIR="+dir, "TMPDIR="+dir, "USER=somebody", "TZ=Pacific/Auckland", "LANG=de_AT.UTF-8", "GOMAXPROCS=1"); err != nil {
		t.Fatal(err)
	}
	var programs [2][]byte
	for i, path := range []string{plain, output} {
		var err error
		if programs[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Errorf("%d and %d bytes differ", len(programs[0]), len(programs[1]))
	}
}

// TestSBOM compares the list of what the program is built of with what the go command says.
func TestSBOM(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", filepath.Join("..", "..", "lab", "tools"), "./sbom", program)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	//nolint:tagliatelle // the names are those of SPDX
	var document struct {
		Version  string `json:"spdxVersion"`
		Packages []struct {
			Name    string `json:"name"`
			Version string `json:"versionInfo"`
		} `json:"packages"`
		Relationships []struct {
			Type string `json:"relationshipType"`
		} `json:"relationships"`
	}
	if err = json.Unmarshal(out, &document); err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, p := range document.Packages {
		listed[p.Name] = p.Version
	}
	said, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(said)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "dep" {
			continue
		}
		modules++
		if got, ok := listed[fields[1]]; !ok ||
			fields[2] != "(devel)" && strings.HasPrefix(fields[2], "v") && got != fields[2] && got != "" {
			t.Errorf("%s: %q, want %s", fields[1], got, fields[2])
		}
	}
	if document.Version != "SPDX-2.3" || len(document.Packages) != modules+2 || len(document.Relationships) != modules+2 ||
		modules < 20 {
		t.Errorf("%s: %d packages and %d relationships of %d modules", document.Version, len(document.Packages),
			len(document.Relationships), modules)
	}
}

// manifest is what the tests read of an object of Kubernetes.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name, Namespace string
	} `yaml:"metadata"`
	Data map[string]string `yaml:"data"`
	Spec yaml.Node         `yaml:"spec"`
}

// pod is what the tests read of the template of a Deployment.
//
//nolint:tagliatelle // the names are those of Kubernetes
type pod struct {
	Template struct {
		Spec struct {
			Automount bool  `yaml:"automountServiceAccountToken"`
			Grace     int64 `yaml:"terminationGracePeriodSeconds"`
			Security  struct {
				NonRoot bool  `yaml:"runAsNonRoot"`
				User    int64 `yaml:"runAsUser"`
				Seccomp struct {
					Type string `yaml:"type"`
				} `yaml:"seccompProfile"`
			} `yaml:"securityContext"`
			Containers []struct {
				Args  []string `yaml:"args"`
				Ports []struct {
					Name string `yaml:"name"`
					Port int    `yaml:"containerPort"`
				} `yaml:"ports"`
				Security struct {
					Escalation   *bool `yaml:"allowPrivilegeEscalation"`
					ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
					Capabilities struct {
						Drop []string `yaml:"drop"`
					} `yaml:"capabilities"`
				} `yaml:"securityContext"`
				Resources struct {
					Limits map[string]string `yaml:"limits"`
				} `yaml:"resources"`
				StartupProbe   probe `yaml:"startupProbe"`
				ReadinessProbe probe `yaml:"readinessProbe"`
				LivenessProbe  probe `yaml:"livenessProbe"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	} `yaml:"template"`
}

// probe asks whether a pod does what it should, at a page or by a connection.
//
//nolint:tagliatelle // the names are those of Kubernetes
type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
	TCPSocket struct {
		Port string `yaml:"port"`
	} `yaml:"tcpSocket"`
	Failures int `yaml:"failureThreshold"`
}

// selector says which pods an object is about.
type selector struct {
	Labels map[string]string `yaml:"matchLabels"` //nolint:tagliatelle // the names are those of Kubernetes
}

// TestKubernetesManifests reads the manifests: the pod may do nothing that it need not, its flags are those of weir, its
// probes and its service ask at ports that it has, and its configuration is one.
func TestKubernetesManifests(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(readDeploy(t, "deploy/kubernetes/weir.yaml")))
	kinds := map[string]*manifest{}
	for {
		m := new(manifest)
		if err := decoder.Decode(m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if kinds[m.Kind] = m; m.Metadata.Name != "weir" || m.Kind != "Namespace" && m.Metadata.Namespace != "weir" {
			t.Errorf("%s is named %v", m.Kind, m.Metadata)
		}
	}
	for _, kind := range []string{
		"Namespace", "ServiceAccount", "ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy",
	} {
		if kinds[kind] == nil {
			t.Fatalf("there is no %s", kind)
		}
	}
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, kinds["ConfigMap"].Data["weir.yaml"])
	if got := weir(t, nil, "config", "check", config); got.status != 0 {
		t.Errorf("the configuration: %s%s", got.stdout, got.stderr)
	}
	var p pod
	if err := kinds["Deployment"].Spec.Decode(&p); err != nil {
		t.Fatal(err)
	}
	spec := &p.Template.Spec
	c := &spec.Containers[0]
	switch {
	case len(spec.Containers) != 1:
		t.Errorf("%d containers", len(spec.Containers))
	case spec.Automount, !spec.Security.NonRoot, spec.Security.User == 0, spec.Security.Seccomp.Type != "RuntimeDefault",
		c.Security.Escalation == nil || *c.Security.Escalation, !c.Security.ReadOnly,
		fmt.Sprint(c.Security.Capabilities.Drop) != "[ALL]",
		c.Resources.Limits["memory"] == "":
		t.Errorf("the pod may do more than it need: %+v", spec)
	case c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.StartupProbe.HTTPGet.Path != "/healthz":
		t.Errorf("the probes ask %q and %q", c.ReadinessProbe.HTTPGet.Path, c.StartupProbe.HTTPGet.Path)
	case c.StartupProbe.Failures < 10:
		t.Errorf("it must be up at the %d. probe", c.StartupProbe.Failures)
	case c.LivenessProbe.HTTPGet.Path != "":
		t.Errorf("a server that shuts down is killed: %+v", c.LivenessProbe)
	}
	expectFlags(t, c.Args)
	// It is ended only when it has drained.
	drains := time.Duration(0)
	for _, arg := range c.Args {
		if name, value, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "--shutdown-") {
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Errorf("%s: %v", arg, err)
			}
			drains += d
		}
	}
	if grace := time.Duration(spec.Grace) * time.Second; drains == 0 || grace <= drains {
		t.Errorf("it takes %v to drain, and is killed after %v", drains, grace)
	}
	expectSelectors(t, kinds)
	ports := map[string]int{}
	for _, port := range c.Ports {
		ports[port.Name] = port.Port
		if !slices.Contains(c.Args, fmt.Sprintf("--%s=0.0.0.0:%d", port.Name, port.Port)) {
			t.Errorf("weir does not listen on the port %s, %d", port.Name, port.Port)
		}
	}
	//nolint:tagliatelle // the names are those of Kubernetes
	type target struct {
		Port string `yaml:"targetPort"`
	}
	var service struct {
		Ports []target `yaml:"ports"`
	}
	if err := kinds["Service"].Spec.Decode(&service); err != nil {
		t.Fatal(err)
	}
	for _, port := range service.Ports {
		if ports[port.Port] == 0 {
			t.Errorf("the service asks at the port %s, which the pod has not", port.Port)
		}
	}
	for _, port := range []string{c.StartupProbe.HTTPGet.Port, c.ReadinessProbe.HTTPGet.Port, c.LivenessProbe.TCPSocket.Port} {
		if ports[port] == 0 {
			t.Errorf("a probe asks at the port %q, which the pod has not", port)
		}
	}
	if slices.Contains(service.Ports, target{"admin"}) || len(service.Ports) != 3 {
		t.Errorf("ports of the service: %v", service)
	}
	if !slices.Contains(c.Args, "--admin-token-file=/run/secrets/weir/token") ||
		slices.ContainsFunc(c.Args, func(a string) bool { return strings.Contains(a, "token=") }) {
		t.Errorf("the admin API is open, or its token is on the command line: %q", c.Args)
	}
}

// expectSelectors expects that what is about pods is about those of the Deployment.
func expectSelectors(t *testing.T, kinds map[string]*manifest) {
	t.Helper()
	var deployment struct {
		Selector selector `yaml:"selector"`
		Template struct {
			Metadata struct {
				Labels map[string]string `yaml:"labels"`
			} `yaml:"metadata"`
		} `yaml:"template"`
	}
	//nolint:tagliatelle // the names are those of Kubernetes
	var policy struct {
		Selector selector `yaml:"podSelector"`
	}
	var service struct {
		Selector map[string]string `yaml:"selector"`
	}
	var budget struct {
		Selector selector `yaml:"selector"`
	}
	for kind, spec := range map[string]any{
		"Deployment": &deployment, "NetworkPolicy": &policy, "Service": &service, "PodDisruptionBudget": &budget,
	} {
		if err := kinds[kind].Spec.Decode(spec); err != nil {
			t.Fatal(err)
		}
	}
	want := deployment.Template.Metadata.Labels
	for kind, got := range map[string]map[string]string{
		"Deployment": deployment.Selector.Labels, "NetworkPolicy": policy.Selector.Labels, "Service": service.Selector,
		"PodDisruptionBudget": budget.Selector.Labels,
	} {
		if len(got) == 0 || !maps.Equal(got, want) {
			t.Errorf("the %s is about %v, and the pods are %v", kind, got, want)
		}
	}
}
