package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInstallCommands runs the commands of docs/install.md that can run where nothing is installed or uploaded, and holds the others
// against the files that they are about. A command that is in neither list fails. Those of the go command with a version are run by
// TestInstallsFromTheTags in lab/release.
func TestInstallCommands(t *testing.T) {
	t.Parallel()
	page := readDeploy(t, "docs/install.md")
	seen := map[string]bool{}
	for i, part := range strings.Split(page, "```sh\n") {
		block, _, _ := strings.Cut(part, "```")
		if i == 0 {
			continue // what is before the first block
		}
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			seen[line] = true
			expectInstall(t, line)
		}
	}
	for _, cell := range regexp.MustCompile("(?m)^\\| .* \\| `(.*)` \\|$").FindAllStringSubmatch(page, -1) {
		seen[cell[1]] = true
		expectInstall(t, cell[1])
	}
	if len(seen) < 10 {
		t.Errorf("there are only %d commands: %v", len(seen), seen)
	}
}

// expectInstall runs a command, or holds it against the files of the repository.
func expectInstall(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	has := func(file, text string) {
		t.Helper()
		if !strings.Contains(readDeploy(t, file), text) {
			t.Errorf("%s: %s has no %q", line, file, text)
		}
	}
	switch {
	case line == "go install ./cmd/weir":
		bin := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", words[1:]...)
		cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "GOBIN="+bin, "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-s") // sooner
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "version").Output(); err != nil ||
			!strings.HasPrefix(string(out), "weir ") {
			t.Errorf("the installed program prints %q: %v", out, err)
		}
	case strings.HasPrefix(line, "go install github.com/weirhq/weir/cmd/weir@"), strings.HasPrefix(line, "go get github.com/weirhq/weir@"):
		has("lab/release/release_test.go", `documented(t, "`+words[1]+`", version)`)
	case strings.HasPrefix(line, "go mod "), line == "go build":
		has("readme_test.go", `os.ReadFile("docs/install.md")`) // builds a program by them
	case words[0] == "mkdir":
		has("docs/install.md", " > "+words[2]+"/weir\n")
	case words[0] == "weir":
		command, _, _ := strings.Cut(line, " >") // into a file of the user
		if got := weir(t, nil, strings.Fields(command)[1:]...); got.status != 0 || got.stdout == "" || got.stderr != "" {
			t.Errorf("%s: %d %s", line, got.status, got.stderr)
		}
	case words[0] == "make":
		has("Makefile", "\n"+words[1]+": ## ")
	case strings.HasPrefix(line, "sudo apt install ./dist/"), strings.HasPrefix(line, "sudo dnf install ./dist/"):
		has(".ci/packages", "only '"+strings.TrimPrefix(words[3], "./dist/")+"'")
	case line == "sudo systemctl enable --now weir":
		has(".goreleaser.yaml", "dst: /usr/lib/systemd/system/weir.service")
	case strings.HasPrefix(line, "docker build "):
		has("deploy/docker/Dockerfile", "\n#   "+line+"\n")
	case strings.HasPrefix(line, "docker run "):
		at := slices.Index(words, "serve")
		if at < 0 {
			t.Fatalf("%s: it does not serve", line)
		}
		if image := words[at-1]; image != "weir" {
			has(".goreleaser.yaml", "images: ["+strings.TrimSuffix(image, ":0.1.0")+"]")
		}
		expectFlags(t, []string{"serve", strings.Join(words[at+1:], "="), "--config=weir.yaml"})
	case strings.HasPrefix(line, "kubectl "):
		has("deploy/kubernetes/weir.yaml", "\n#   "+line+"\n")
	case strings.HasPrefix(line, "helm install weir "+chart+" "):
		values := object{}
		for i, word := range words {
			if word == "--set" {
				name, value, _ := strings.Cut(words[i+1], "=")
				outer, inner, _ := strings.Cut(name, ".")
				merge(values, object{outer: object{inner: value}})
			}
		}
		if got := renderChart(t, "weir", "weir", values); got["Deployment"] == nil {
			t.Errorf("%s: it has no Deployment", line)
		}
	case strings.HasPrefix(line, "helm install weir oci://"):
		has(".github/workflows/release.yml", "helm push dist/weir-*.tgz "+strings.TrimSuffix(words[3], "/weir")+"\n")
	case strings.HasPrefix(line, "brew install "):
		owner, rest, _ := strings.Cut(words[2], "/")
		tap, name, _ := strings.Cut(rest, "/")
		has(".goreleaser.yaml", "homebrew_casks:\n  - name: "+name+"\n")
		has(".goreleaser.yaml", "{owner: "+owner+", name: homebrew-"+tap+",")
	default:
		t.Errorf("%s: no test knows this command", line)
	}
}
