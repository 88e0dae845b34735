package main_test

import (
	"strings"
	"testing"
)

// TestMisuse: each wrong command line is told in one line what is wrong with it and where to find help.
func TestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"srve":                                 `unknown command "srve"; did you mean "serve"?; run "weir --help"`,
		"frobnicate --limit x":                 `unknown command "frobnicate"; run "weir --help"`,
		"--frobnicate":                         `unknown flag "--frobnicate"; run "weir --help"`,
		"help srve":                            `help: no command "srve"; did you mean "serve"?; run "weir help --help"`,
		"completion fsh":                       `no completion for "fsh": must be bash, zsh, fish or powershell; did you mean "fish"?`,
		"version now":                          `unexpected argument "now"; run "weir version --help"`,
		"serve now":                            `unexpected argument "now"; run "weir serve --help"`,
		"serve weir.yaml":                      `unexpected argument "weir.yaml"; did you mean "--config weir.yaml"?; run "weir serve --help"`,
		"serve --limit 10rps":                  `--limit "10rps": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s; did you mean "10/s"?; run`,
		"serve --limit 1k/s":                   `--limit "1k/s": permits: must be a number above 0, up to 10^15; did you mean "1000/s"?; run`,
		"admin override --burst 200":           `unknown flag "--burst"; did you mean "--limit '100/s, burst 200'"?; run`,
		"replay x.log --by ip":                 `did you mean "client.ip"?; run "weir replay --help"`,
		"serve --limits 5/s":                   `unknown flag "--limits"; did you mean "--limit"?; run "weir serve --help"`,
		"serve -l 5/s":                         `unknown flag "-l"`,
		"serve --limit":                        `--limit needs a value: permits/period; run "weir serve --help"`,
		"serve --limit 10":                     `--limit "10": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s; run "weir serve --help"`,
		"serve --limit 10/fortnight":           `--limit "10/fortnight": period: must be a unit (s, min, h, day, ...)`,
		"serve --limit 0/s":                    `--limit "0/s": rate of 0 permits per 1s: must be from 1 to 10^15 permits`,
		"serve --burst 0":                      `--burst "0": must be a whole number from 1 to 1000000000000000; run "weir serve --help"`,
		"serve --burst many":                   `--burst "many": must be a whole number from 1`,
		"serve --limit 1/day --burst 1000000":  `--burst "1000000": must be`,
		"serve --max-keys 0":                   `--max-keys "0": must be a whole number from 1 to 2147483648`,
		"serve --http 7070":                    `--http "7070": must be host:port such as 127.0.0.1:7070`,
		"serve --http 127.0.0.1:99999":         `with a port from 0 (any free) to 65535`,
		"serve --log-level loud":               `--log-level "loud": must be debug, info, warn or error; run "weir serve --help"`,
		"serve --log-level wran":               `must be debug, info, warn or error; did you mean "warn"?; run`,
		"serve --log-format xml":               `--log-format "xml": must be text or json`,
		"serve --shutdown-timeout -1s":         `--shutdown-timeout "-1s": must be a duration such as 500ms, 10s or 1m30s, from 0s to 1h`,
		"serve --shutdown-timeout 5":           `--shutdown-timeout "5": must be a duration`,
		"serve --by path":                      `unknown flag "--by"; "weir proxy" and "weir replay" have it; run`,
		"bench --json http":                    `unknown flag "--json"; write it after a command, such as "weir bench http --json"; run "weir bench --help"`,
		"serve --listen :8080":                 `unknown flag "--listen"; did you mean "--http"?`,
		"proxy --port 8080":                    `unknown flag "--port"; did you mean "--listen"?`,
		"serve --rate 1/s":                     `unknown flag "--rate"; did you mean "--limit"?`,
		"serve -c weir.yaml":                   `but -h; did you mean "--config"?`,
		"top --url http://x":                   `unknown flag "--url"; did you mean "--server"?`,
		"why 12 --admin :7071":                 `unknown flag "--admin"; did you mean "--server"?`,
		"check weir.yaml":                      `unknown command "check"; did you mean "config check"?`,
		"replay":                               `replay needs a FILE, or - for the standard input; run "weir replay --help"`,
		"replay - -":                           `replay can read the standard input only once`,
		"replay x.log --by client.port":        `--by "client.port": "client.port" is none of client, client.ip, client.net, header:NAME, path, method, host, none`,
		"replay x.log --by clientip":           `did you mean "client.ip"?; run "weir replay --help"`,
		"replay x.log --by header:Cookie":      `--by "header:Cookie": an access log has no header but header:Referer and header:User-Agent`,
		"replay x.log --top -1":                `--top "-1": must be a whole number from 0 to 10000`,
		"replay x.log --json=perhaps":          `--json "perhaps": must be true or false`,
		"replay x.log --config a --burst 3":    `--burst cannot be combined with --config`,
		"replay x.log --against b.yaml":        `--against needs something to compare with: give --config, or a limit by --limit`,
		"replay x.log --burst-rate 3":          `unknown flag "--burst-rate"; run`,
		"replay /dev/null --chart /none/x.svg": `--chart "/none/x.svg": no such file or directory: must be in a directory that is there`,
		"replay x.log --chart x.png":           `--chart "x.png": must be a file whose name ends in .svg`,
		"config chek":                          `config has no command "chek"; did you mean "check"?`,
		"config check":                         `check needs a FILE; run "weir config check --help"`,
		"config explain":                       `explain needs one FILE, not 0`,
		"config explain x --client 192.0.2.1":  `--client needs --request`,
		"config explain x -x y":                `unknown flag "-x": flags of one letter are not known but -h, -H`,
		"config schema now":                    `unexpected argument "now"`,
		"test":                                 `test needs a FILE of tests`,
		"test x --run (":                       `--run "(": is not a regular expression`,
		"replay /nowhere/x.log":                `FILE "/nowhere/x.log": no such file or directory: must be an access log`,
		"replay x.log --limit \x1b[31m":        `--limit "\x1b[31m": must be permits/period`,
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

// TestMisuseIsToldWithoutAServer: what is wrong with a command line is told with the status 2, whether or not a server is there to ask.
func TestMisuseIsToldWithoutAServer(t *testing.T) {
	const (
		override = "admin override --policy p --key k --reason r --limit "
		reason   = "must be 1 to 1024 bytes of printable text in UTF-8"
		sign     = "must be 1 to 256 bytes of printable text in UTF-8"
		limit    = `must be a limit such as '100/s, burst 200', 100/min, or a number of permits such as 100`
	)
	for args, want := range map[string]string{
		override + "0/s":                                           `--limit "0/s": rate of 0 permits per 1s: must be from 1 to 10^15 permits`,
		override + "unlimited":                                     `--limit "unlimited": must be a limit; did you mean "--unlimited"?`,
		override + "10rps":                                         `--limit "10rps": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s; did you mean "10/s"?`,
		override + "10rps,burst_20":                                `--limit "10rps,burst 20": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s; did you mean "10/s"?`,
		override + "x":                                             `--limit "x": ` + limit,
		override + "1h=1/fort":                                     `--limit "1h=1/fort": period: must be a unit (s, min, h, day, ...)`,
		override + "1/s,burst":                                     `--limit "1/s,burst": ` + limit,
		override + "5/s,burst_0":                                   `--limit "5/s,burst 0": must be from 1 to 10^15`,
		override + "1/d,burst_100000000":                           `--limit "1/d,burst 100000000": must be small enough to be regained within`,
		override + "0":                                             `--limit "0": must be from 1 to 10^15`,
		override + "-1":                                            `--limit "-1": must be from 1 to 10^15`,
		override + "0_at_once":                                     `--limit "0 at once": must be from 1 to 10^15`,
		"admin reload --reason a^Nb":                               `--reason "a\nb": ` + reason,
		"admin reload --reason ^F":                                 `--reason "\xff": ` + reason,
		"cluster remove n --reason a^Nb":                           `--reason "a\nb": ` + reason,
		"admin keys --policy ^F":                                   `--policy "\xff": must be 1 to 1024 bytes of text in UTF-8`,
		"top --once --policy ^F":                                   `--policy "\xff": must be 1 to 1024 bytes of text in UTF-8`,
		"quota show --policy ^F":                                   `--policy "\xff": must be 1 to 1024 bytes of text in UTF-8`,
		"why --request / -H a:b^Nc":                                `--header "a: b\nc": the value must have no control characters`,
		"why --request / -H a:^F":                                  `--header "\xff": must be UTF-8, as the server is asked in JSON`,
		"why --request / --attribute a=^F":                         `--attribute "\xff": must be UTF-8, as the server is asked in JSON`,
		"why --request / --route ^F":                               `--route "\xff": must be UTF-8, as the server is asked in JSON`,
		"admin status --server http://x:99999":                     `--server "http://x:99999": has the port 99999: must be from 1 to 65535`,
		"admin status --server http://:80":                         `--server "http://:80": must be a URL such as http://127.0.0.1:7070`,
		"admin status --server http://x#y":                         `--server "http://x#y": must be a URL such as http://127.0.0.1:7070`,
		"quota adjust --policy p --permits 1 --reason a^Nb":        `--reason "a\nb": ` + sign,
		"quota adjust --policy p --permits 1 --reason r --by a^Nb": `--by "a\nb": ` + sign,
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.NewReplacer("^N", "\n", "^F", "\xff", "_", " ").Replace(words[i])
		}
		if !strings.Contains(args, "--server") {
			words = append(words, "--server", "http://127.0.0.1:1")
		}
		got := weir(t, nil, words...)
		if got.status != 2 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("weir %q: status %d: %s\nwant 2, and one line with %s", words, got.status, got.stderr, want)
		}
	}
	for _, right := range []string{
		"100/s", "1h=100/s, burst 200", "day=5/min", "5", "100 per month", "4 at once", "sliding-window 100/min in 10 segments", "100/min in 5 segments",
		"fixed-window 100/ms",
	} {
		got := weir(t, nil, append(strings.Fields(override), right, "--server", "http://127.0.0.1:1")...)
		if got.status != 1 || !strings.Contains(got.stderr, "is not reachable") {
			t.Errorf("%s: status %d: %s", right, got.status, got.stderr)
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
