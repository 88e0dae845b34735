package main_test

import (
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// helped is a command, and what it prints with --help.
type helped struct {
	path []string
	help outcome
}

// commands are all commands with their help.
func commands(t *testing.T) []helped {
	t.Helper()
	all := []helped{{}, {path: []string{"help"}}}
	listed := regexp.MustCompile(`(?m)^ {2}([a-z]+) +[A-Z]`)
	for i := 0; i < len(all); i++ {
		all[i].help = weir(t, nil, slices.Concat(all[i].path, []string{"--help"})...)
		_, list, found := strings.Cut(all[i].help.stdout, "\nCommands:\n")
		if !found {
			continue
		}
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range listed.FindAllStringSubmatch(list, -1) {
			all = append(all, helped{path: slices.Concat(all[i].path, m[1:])})
		}
	}
	return all
}

func TestHelpOfEveryCommand(t *testing.T) {
	all := commands(t)
	if len(all) < 10 {
		t.Errorf("only %d commands: %v", len(all), all)
	}
	for _, command := range all {
		path, help := command.path, command.help
		name := strings.Join(append([]string{"weir"}, path...), " ")
		if help.status != 0 || help.stderr != "" {
			t.Errorf("%s --help: status %d, %s", name, help.status, help.stderr)
		}
		summary, rest, _ := strings.Cut(help.stdout, "\n\n")
		if !strings.HasPrefix(summary, name+": ") || strings.Contains(summary, "\n") {
			t.Errorf("%s: the summary is %q", name, summary)
		}
		description, rest, _ := strings.Cut(rest, "\n\nUsage:\n")
		if len(description) < 60 {
			t.Errorf("%s: the description is %q", name, description)
		}
		_, rest, _ = strings.Cut(rest, "\nExamples:\n")
		examples, rest, _ := strings.Cut(rest, "\n\n")
		if n := strings.Count(examples, "weir"); n < 2 {
			t.Errorf("%s: %d examples: %q", name, n, examples)
		}
		if !strings.Contains(rest, "Flags:\n") || !strings.Contains(rest, "-h, --help\n      explain the command\n") {
			t.Errorf("%s: no flags in %q", name, rest)
		}
		for line := range strings.SplitSeq(help.stdout, "\n") {
			widest := 80
			if strings.Contains("\n"+examples+"\n", "\n"+line+"\n") || slices.Contains(path, "completion") {
				widest = 110 // a command is one line, to be copied, and completion has the words of a library
			}
			if len(line) > widest {
				t.Errorf("%s: a line of %d columns, more than %d: %s", name, len(line), widest, line)
			}
		}
		if again := weir(t, nil, slices.Concat([]string{"help"}, path)...); again.stdout != help.stdout {
			t.Errorf("help %s differs from --help", name)
		}
	}
}

// TestFlagsSayTheirDefault: each flag with a value says what it is if it is not given.
func TestFlagsSayTheirDefault(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^ {2}(?:-., )?--([a-z-]+) \S.*\n((?: {6}.*\n)+)`)
	for name, least := range map[string]int{"serve": 5, "proxy": 15, "replay": 5, "config explain": 7, "test": 1} {
		found := flag.FindAllStringSubmatch(weir(t, nil, append(strings.Fields(name), "--help")...).stdout, -1)
		if len(found) < least {
			t.Errorf("%s: flags %q", name, found)
		}
		for _, f := range found {
			if n := strings.Count(f[2], "(default"); n != 1 {
				t.Errorf("%s --%s: %d defaults in %q", name, f[1], n, f[2])
			}
		}
	}
}

func TestBareProgramExplainsItself(t *testing.T) {
	bare := weir(t, nil)
	if bare.status != 0 || bare.stdout != weir(t, nil, "--help").stdout {
		t.Errorf("status %d\n%s", bare.status, bare.stdout)
	}
}

func TestVersion(t *testing.T) {
	long := weir(t, nil, "version")
	if long.status != 0 || !regexp.MustCompile(`^weir \S+\n(revision .*\n)?go \S+ \w+/\w+\n$`).MatchString(long.stdout) {
		t.Errorf("%d, %q", long.status, long.stdout)
	}
	for _, flag := range []string{"--version", "-v"} {
		if short := weir(t, nil, flag); short.status != 0 || !strings.HasPrefix(long.stdout, short.stdout) || short.stdout == "" {
			t.Errorf("%s: %d, %q", flag, short.status, short.stdout)
		}
	}
	info, ok := debug.ReadBuildInfo()
	if ok && !strings.Contains(long.stdout, strings.TrimPrefix(info.GoVersion, "go")) {
		t.Errorf("%q does not name %s", long.stdout, info.GoVersion)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		script := weir(t, nil, "completion", shell)
		if script.status != 0 || len(script.stdout) < 1000 || !strings.Contains(script.stdout, "weir") {
			t.Errorf("%s: status %d, %d bytes", shell, script.status, len(script.stdout))
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "-n")
	bash.Stdin = strings.NewReader(weir(t, nil, "completion", "bash").stdout)
	if out, err := bash.CombinedOutput(); err != nil {
		t.Errorf("bash does not read its script: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"serve --log-level": "debug\ninfo\nwarn\nerror\n:4\n",
		"replay --by":       "client\nclient.ip\nclient.net\nheader:\npath\nmethod\nhost\nnone\n:4\n",
		"serve --http":      ":4\n",
		"replay":            ":0\n",
		"replay --config":   ":0\n",
		"config":            "check\tFind all mistakes of configurations\nexplain\tExplain a configuration, or what it does with a request\nschema\tPrint the JSON Schema of configurations\n:4\n",
		"config check":      "yaml\nyml\n:8\n",
		"config explain":    "yaml\nyml\n:8\n",
		"test":              "yaml\nyml\n:8\n",
	} {
		got := weir(t, nil, slices.Concat([]string{"__complete"}, strings.Fields(args), []string{""})...)
		if got.stdout != want {
			t.Errorf("%s TAB: %q, want %q", args, got.stdout, want)
		}
	}
}
