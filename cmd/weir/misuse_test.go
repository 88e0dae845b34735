package main_test

import (
	"strings"
	"testing"
)

// TestMisuse: each wrong command line is told in one line what is wrong with it and where to find help.
func TestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"srve":                                `unknown command "srve"; did you mean "serve"?; run "weir --help"`,
		"frobnicate --limit x":                `unknown command "frobnicate"; run "weir --help"`,
		"--frobnicate":                        `unknown flag "--frobnicate"; run "weir --help"`,
		"help srve":                           `help: no command "srve"; did you mean "serve"?; run "weir help --help"`,
		"completion fsh":                      `no completion for "fsh": must be bash, zsh, fish or powershell; did you mean "fish"?`,
		"version now":                         `unexpected argument "now"; run "weir version --help"`,
		"serve now":                           `unexpected argument "now"; run "weir serve --help"`,
		"serve --limits 5/s":                  `unknown flag "--limits"; did you mean "--limit"?; run "weir serve --help"`,
		"serve -l 5/s":                        `unknown flag "-l"`,
		"serve --limit":                       `--limit needs a value: permits/period; run "weir serve --help"`,
		"serve --limit 10":                    `--limit "10": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s; run "weir serve --help"`,
		"serve --limit 10/fortnight":          `--limit "10/fortnight": period: must be a unit (s, min, h, day, ...)`,
		"serve --limit 0/s":                   `--limit "0/s": rate of 0 permits per 1s: must be from 1 to 10^15 permits`,
		"serve --burst 0":                     `--burst "0": must be a whole number from 1 to 1000000000000000; run "weir serve --help"`,
		"serve --burst many":                  `--burst "many": must be a whole number from 1`,
		"serve --limit 1/day --burst 1000000": `--burst "1000000": must be`,
		"serve --max-keys 0":                  `--max-keys "0": must be a whole number from 1 to 2147483648`,
		"serve --http 7070":                   `--http "7070": must be host:port such as 127.0.0.1:7070`,
		"serve --http 127.0.0.1:99999":        `with a port from 0 (any free) to 65535`,
		"serve --log-level loud":              `--log-level "loud": must be debug, info, warn or error; run "weir serve --help"`,
		"serve --log-level wran":              `must be debug, info, warn or error; did you mean "warn"?; run`,
		"serve --log-format xml":              `--log-format "xml": must be text or json`,
		"serve --shutdown-timeout -1s":        `--shutdown-timeout "-1s": must be a duration such as 500ms, 10s or 1m30s, from 0s to 1h`,
		"serve --shutdown-timeout 5":          `--shutdown-timeout "5": must be a duration`,
		"serve --by path":                     `unknown flag "--by"; "weir proxy" and "weir replay" have it; run`,
		"serve --listen :8080":                `unknown flag "--listen"; did you mean "--http"?`,
		"proxy --port 8080":                   `unknown flag "--port"; did you mean "--listen"?`,
		"serve --rate 1/s":                    `unknown flag "--rate"; did you mean "--limit"?`,
		"serve -c weir.yaml":                  `but -h; did you mean "--config"?`,
		"top --url http://x":                  `unknown flag "--url"; did you mean "--server"?`,
		"why 12 --admin :7071":                `unknown flag "--admin"; did you mean "--server"?`,
		"check weir.yaml":                     `unknown command "check"; did you mean "config check"?`,
		"replay":                              `replay needs a FILE, or - for the standard input; run "weir replay --help"`,
		"replay - -":                          `replay can read the standard input only once`,
		"replay x.log --by client.port":       `--by "client.port": "client.port" is none of client, client.ip, client.net, header:NAME, path, method, host, none`,
		"replay x.log --by clientip":          `did you mean "client.ip"?; run "weir replay --help"`,
		"replay x.log --by header:Cookie":     `--by "header:Cookie": an access log has no header but header:Referer and header:User-Agent`,
		"replay x.log --top -1":               `--top "-1": must be a whole number from 0 to 10000`,
		"replay x.log --json=perhaps":         `--json "perhaps": must be true or false`,
		"replay x.log --config a --burst 3":   `--burst cannot be combined with --config`,
		"replay x.log --against b.yaml":       `--against needs something to compare with: give --config, or a limit by --limit`,
		"replay x.log --chart x.png":          `--chart "x.png": must be a file whose name ends in .svg`,
		"config chek":                         `config has no command "chek"; did you mean "check"?`,
		"config check":                        `check needs a FILE; run "weir config check --help"`,
		"config explain":                      `explain needs one FILE, not 0`,
		"config explain x --client 192.0.2.1": `--client needs --request`,
		"config explain x -x y":               `unknown flag "-x": flags of one letter are not known but -h, -H`,
		"config schema now":                   `unexpected argument "now"`,
		"test":                                `test needs a FILE of tests`,
		"test x --run (":                      `--run "(": is not a regular expression`,
		"replay /nowhere/x.log":               `FILE "/nowhere/x.log": no such file or directory: must be an access log`,
		"replay x.log --limit \x1b[31m":       `--limit "\x1b[31m": must be permits/period`,
	} {
		got := weir(t, nil, strings.Fields(args)...)
		if got.status != 2 || got.stdout != "" {
			t.Errorf("weir %s: status %d, want 2\n%s", args, got.status, got.stdout)
		}
		if !strings.HasPrefix(got.stderr, "weir: ") || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, want) ||
			!strings.HasSuffix(got.stderr, " --help\"\n") {
			t.Errorf("weir %s: %s\nwant one line with %s", args, got.stderr, want)
		}
	}
}

func TestFailure(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	got := weir(t, nil, "admin", "policies", "--server", nobody)
	if got.status != 1 || got.stdout != "" || !strings.HasPrefix(got.stderr, "weir: "+nobody+" is not reachable") ||
		strings.Contains(got.stderr, "--help") {
		t.Errorf("status %d: %s%s", got.status, got.stdout, got.stderr)
	}
}
