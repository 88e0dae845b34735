package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestMisuseOfBench: each wrong command line is told which flag is wrong, its value, and what is accepted.
func TestMisuseOfBench(t *testing.T) {
	for args, want := range map[string]string{
		"bench htp":                                   `bench has no command "htp"; did you mean "http"?; run "weir bench --help"`,
		"bench http now":                              `unexpected argument "now"; run "weir bench http --help"`,
		"bench http --address 7070":                   `--address "7070": must be host:port such as 127.0.0.1:7070`,
		"bench http --address :7070":                  `--address ":7070": must be host:port`,
		"bench http --address x:0":                    `with a port from 1 to 65535`,
		"bench http --connections 0":                  `--connections "0": must be a whole number from 1 to 10000`,
		"bench http --pipeline 2":                     `unknown flag "--pipeline"`,
		"bench resp --pipeline 1001":                  `--pipeline "1001": must be a whole number from 1 to 1000`,
		"bench resp --pipline 3":                      `did you mean "--pipeline"?`,
		"bench rls --in-flight 0":                     `--in-flight "0": must be a whole number from 1 to 1000`,
		"bench http --rate 5":                         `--rate "5": must be requests/period such as 50000/s or 600/min, from 0.01/s to 10000000/s`,
		"bench http --rate 1/day":                     `--rate "1/day": must be requests/period`,
		"bench http --rate 100000000/s":               `--rate "100000000/s": must be requests/period`,
		"bench http --arrivals random":                `--arrivals "random": must be fixed or poisson`,
		"bench http --arrivals poisson":               `--arrivals needs --rate`,
		"bench http --keys 0":                         `--keys "0": must be a whole number from 1 to 1000000000`,
		"bench http --key-prefix \"":                  `must be 0 to 64 characters of ASCII that print`,
		"bench http --distribution zipff":             `--distribution "zipff": must be uniform or zipf; did you mean "zipf"?`,
		"bench http --distribution zipf --zipf-s 0":   `--zipf-s "0": must be a number such as 0.99 or 1.2, from 0.01 to 10`,
		"bench http --distribution zipf --zipf-s nan": `--zipf-s "nan": must be a number`,
		"bench http --zipf-s 1":                       `--zipf-s needs --distribution zipf`,
		"bench http --seed -1":                        `--seed "-1": must be a whole number from 0 to`,
		"bench http --duration 1ms":                   `--duration "1ms": must be a duration such as 500ms, 10s or 1m30s, from 10ms to 24h`,
		"bench http --requests 0":                     `--requests "0": must be a whole number from 1 to 1000000000000`,
		"bench http --requests 1 --duration 1s":       `--requests cannot be combined with --duration`,
		"bench http --warmup 2h":                      `--warmup "2h": must be a duration such as 500ms, 10s or 1m30s, from 0s to 1h`,
		"bench http --timeout 0s":                     `--timeout "0s": must be a duration`,
		"bench http --cost -1":                        `--cost "-1": must be a whole number from 0 to 1000000000000000`,
		"bench rls --cost 0":                          `--cost "0": must be a whole number from 1 to 4294967295`,
		"bench http --tls-ca x":                       `--tls-ca needs --tls`,
		"bench http --tls-insecure":                   `--tls-insecure needs --tls`,
		"bench http --tls --tls-insecure --tls-ca x":  `--tls-ca cannot be combined with --tls-insecure`,
		"bench resp --limit 10/s":                     `--limit "10/s": must be max_burst/count/period such as 15/30/60`,
		"bench resp --limit 15/0/60":                  `--limit "15/0/60": must be max_burst/count/period`,
		"bench resp --policy x --limit 1/1/1":         `--limit cannot be combined with --policy`,
		"bench resp --command PING --cost 2":          `--cost cannot be combined with --command`,
		"bench resp --command PING --policy x":        `--policy cannot be combined with --command`,
		"bench resp --command {key}{key}":             `--command "{key}{key}": has {key} twice in one argument`,
		"bench resp --command 'x":                     `--command "'x": has a quote that does not end`,
		"bench rls --descriptor =x":                   `--descriptor "=x": must be key=value`,
		"bench rls --domain \x1b":                     `--domain "\x1b": must be 1 to 256 characters that print`,
		"bench rls --descriptor a={key}{key}":         `--descriptor "a={key}{key}": must be key=value`,
	} {
		got := weir(t, nil, strings.Fields(args)...)
		if got.status != 2 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, want) ||
			!strings.HasSuffix(got.stderr, " --help\"\n") {
			t.Errorf("weir %s: status %d, %s\nwant one line with %s", args, got.status, got.stderr, want)
		}
	}
	for args, want := range map[string]string{
		"bench resp --password-file /nowhere/there": "weir: --password-file: open /nowhere/there: no such file or directory\n",
		"bench http --tls --tls-ca /nowhere/there":  "weir: --tls-ca: open /nowhere/there: no such file or directory\n",
	} {
		if got := weir(t, nil, strings.Fields(args)...); got.status != 2 || got.stdout != "" || got.stderr != want {
			t.Errorf("weir %s: status %d, %s", args, got.status, got.stderr)
		}
	}
}

func TestCompletionOfBench(t *testing.T) {
	for args, want := range map[string]string{
		"bench":                      "http\tMeasure the HTTP check API\nresp\tMeasure the RESP front, or a Redis\nrls\tMeasure Envoy's rate limit service\n:4\n",
		"bench http --distribution":  "uniform\nzipf\n:4\n",
		"bench resp --arrivals":      "fixed\npoisson\n:4\n",
		"bench rls --connections":    ":4\n",
		"bench rls":                  ":4\n",
		"bench resp --password-file": ":0\n",
		"bench resp --tls-ca":        ":0\n",
	} {
		if got := weir(t, nil, append(append([]string{"__complete"}, strings.Fields(args)...), "")...); got.stdout != want {
			t.Errorf("%s TAB: %q, want %q", args, got.stdout, want)
		}
	}
}

// TestHelpOfBench keeps the help of these commands, so that a change of it is seen, and looks for the default of each flag.
func TestHelpOfBench(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^ {2}--([a-z-]+) \S.*\n((?: {6}.*\n)+)`)
	for _, name := range []string{"bench", "bench http", "bench resp", "bench rls"} {
		help := weir(t, nil, append(strings.Fields(name), "--help")...).stdout
		golden(t, "help/"+strings.ReplaceAll(name, " ", "_")+".txt", help)
		for _, f := range flag.FindAllStringSubmatch(help, -1) {
			if n := strings.Count(f[2], "(default"); n != 1 {
				t.Errorf("%s --%s: %d defaults in %q", name, f[1], n, f[2])
			}
		}
	}
}

// loadAddresses are those that docs/load.md names, each of which a server of the test stands for.
func loadAddresses(t *testing.T) map[string]string {
	t.Helper()
	redis, s := startRedis(t), startFronts(t, nil)
	return map[string]string{
		"127.0.0.1:7070": s.address, "127.0.0.1:6380": s.resp, "127.0.0.1:8081": s.grpc, "127.0.0.1:6379": redis.address(),
	}
}

// TestDocsOfLoad runs every command of docs/load.md for a short time, against weir serve and a Redis.
func TestDocsOfLoad(t *testing.T) {
	text, err := os.ReadFile("../../docs/load.md")
	if err != nil {
		t.Fatal(err)
	}
	addresses := loadAddresses(t)
	usual := map[string]string{"http": "127.0.0.1:7070", "resp": "127.0.0.1:6380", "rls": "127.0.0.1:8081"}
	fronts := map[string]int{}
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ weir bench ")
			if !ok {
				continue
			}
			args := shellWords(command)
			front := args[0]
			fronts[front]++
			address := usual[front]
			var given []string
			for i := 1; i < len(args); i++ {
				switch args[i] {
				case "--address":
					i++
					address = args[i]
				case "--duration", "--warmup":
					i++
				default:
					given = append(given, args[i])
				}
			}
			if addresses[address] == "" {
				t.Errorf("no server stands for %s in %s", address, command)
				continue
			}
			var got outcome
			for duration := 50 * time.Millisecond; duration < time.Minute; duration *= 2 {
				got = weir(t, nil, append([]string{
					"bench", front, "--address", addresses[address], "--duration", duration.String(), "--warmup", "0s", "--timeout", "2m",
				}, given...)...)
				if !hadNoTime(got.stdout) {
					break
				}
			}
			checkLoad(t, command, got)
		}
	}
	if fronts["http"] < 2 || fronts["resp"] < 4 || fronts["rls"] < 2 {
		t.Errorf("it shows too little: %v", fronts)
	}
}

// hadNoTime reports whether a report has no request.
func hadNoTime(report string) bool {
	if strings.HasPrefix(report, "{") {
		var r struct {
			Requests int64 `json:"requests"`
		}
		return json.Unmarshal([]byte(report), &r) == nil && r.Requests == 0
	}
	return regexp.MustCompile(`(?m)^requests +0 `).MatchString(report)
}

// checkLoad looks at the report of a load.
func checkLoad(t *testing.T, command string, got outcome) {
	t.Helper()
	if got.status != 0 || got.stderr != "" {
		t.Errorf("%s: status %d\n%s%s", command, got.status, got.stdout, got.stderr)
		return
	}
	if strings.Contains(command, "--json") {
		var report struct {
			Requests int64 `json:"requests"`
			Errors   int64 `json:"errors"`
		}
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || report.Requests == 0 || report.Errors > 0 {
			t.Errorf("%s: %v\n%s", command, err, got.stdout)
		}
		return
	}
	if !regexp.MustCompile(`(?m)^requests +[1-9]`).MatchString(got.stdout) || !regexp.MustCompile(`(?m)^errors +0 {2}`).MatchString(got.stdout) {
		t.Errorf("%s:\n%s", command, got.stdout)
	}
	for line := range strings.Lines(got.stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%s: %d columns: %s", command, n, line)
		}
	}
}

// TestBenchOnATerminal: a line that changes is on standard error while it runs, and is taken away. A machine that is slow may come to
// it only when the run lasts longer.
func TestBenchOnATerminal(t *testing.T) {
	s := startServer(t)
	line := regexp.MustCompile(`\r\d+\.\d s {2}[\d,]+/s {2}refused .* p50 .* p99 .* *\r *\r$`)
	for duration := 600 * time.Millisecond; ; duration *= 2 {
		got, stdout := benchOnATerminal(t, s, duration)
		if !strings.Contains(stdout, "\nrequests ") || strings.Contains(stdout, "\r") {
			t.Errorf("standard output: %q", stdout)
		}
		if line.MatchString(got) {
			return
		}
		if got != "" || duration > time.Minute {
			t.Fatalf("%v: %q", duration, got)
		}
	}
}

// benchOnATerminal returns what weir bench writes to a terminal, and to standard output.
func benchOnATerminal(t *testing.T, s *server, duration time.Duration) (seen, stdout string) {
	t.Helper()
	screen, tty := terminal(t, 80)
	cmd := command(t, "bench", "http", "--address", s.address, "--duration", duration.String(), "--warmup", "0s", "--connections", "2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	var all strings.Builder
	piece := make([]byte, 1024)
	for {
		n, err := screen.Read(piece)
		all.Write(piece[:n])
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	return all.String(), out.String()
}

// TestBenchThatIsInterrupted tells what it has measured until then.
func TestBenchThatIsInterrupted(t *testing.T) {
	s := startServer(t)
	cmd := command(t, "bench", "http", "--address", s.address, "--duration", "1h", "--warmup", "0s", "--progress")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answered, piece := regexp.MustCompile(` [1-9][\d,]*/s `), make([]byte, 1024)
	for seen := ""; !answered.MatchString(seen); { // it tells each second
		n, ended := stderr.Read(piece)
		if ended != nil {
			t.Fatalf("%q: %v", seen, ended)
		}
		seen += string(piece[:n])
	}
	if err = cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	_, _ = rest.ReadFrom(stderr)
	err = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 130 || !strings.HasSuffix(rest.String(), "weir: interrupted\n") {
		t.Errorf("%v, %s", err, rest.String())
	}
	if !strings.Contains(stdout.String(), "\nresponse ") {
		t.Errorf("%s", stdout.String())
	}
}
